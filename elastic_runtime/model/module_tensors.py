"""The tensors of a PyTorch module that belong to a job: those that are trained, and the buffers that are saved with it.

A parameter that several layers share counts once, by its first name. Frozen parameters and buffers that are not
persistent stay as the script made them: each worker has to make them alike.
"""

from __future__ import annotations

import itertools

import torch

from elastic_runtime.errors import BadInput
from elastic_runtime.model.layout import ELEMENT_BYTES, TensorKind, TensorSpec


def describe_model(model: torch.nn.Module) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Parameters and buffers of a model, for `build_layout`.

    Raises:
        BadInput: nothing to train, or a tensor that cannot be laid out flat.
    """
    parameters, buffers = trained_parameters(model), persistent_buffers(model)
    if not parameters:
        raise BadInput("the model has no parameter with requires_grad: there is nothing to train")
    for kind, tensors in ((TensorKind.PARAMETER, parameters), (TensorKind.BUFFER, buffers)):
        for name, tensor in tensors.items():
            _check(kind, name, tensor)
    _check_overlaps({**parameters, **buffers})
    return _specs(parameters), _specs(buffers)


def trained_parameters(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The parameters with `requires_grad`, by name, in the model's order, a shared one once."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def persistent_buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The buffers that the model's `state_dict` has, by name, in the model's order, a shared one once."""
    modules = dict(model.named_modules(remove_duplicate=False))
    found = {}
    for name, buffer in model.named_buffers():
        owner, _, own_name = name.rpartition(".")
        # torch has no public word for it; a state_dict would do, but may rename and copies what hooks tell it to.
        if own_name not in modules[owner]._non_persistent_buffers_set:
            found[name] = buffer
    return found


def _specs(tensors: dict[str, torch.Tensor]) -> list[TensorSpec]:
    return [TensorSpec(name, tuple(tensor.shape), _dtype(tensor)) for name, tensor in tensors.items()]


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _check(kind: TensorKind, name: str, tensor: torch.Tensor) -> None:
    """Refuse a tensor without a flat array of plain numbers on the CPU."""
    if torch.nn.parameter.is_lazy(tensor):
        raise BadInput(f"{kind} {name!r} has no shape yet: run the model once on a batch before joining")
    if tensor.layout != torch.strided:
        raise BadInput(f"{kind} {name!r} is sparse ({tensor.layout}): make it dense")
    if tensor.is_quantized or _dtype(tensor) not in ELEMENT_BYTES[kind]:
        raise BadInput(f"{kind} {name!r} is of {_dtype(tensor)}: use one of {', '.join(ELEMENT_BYTES[kind])}")
    if tensor.device.type == "meta":
        raise BadInput(f"{kind} {name!r} has no values (device meta): give it some before joining")
    if not tensor.is_contiguous():
        raise BadInput(f"{kind} {name!r} is not contiguous (channels_last, a view?): call .contiguous() on it")


def _check_overlaps(tensors: dict[str, torch.Tensor]) -> None:
    """Refuse tensors that share memory without being the same: two places would be updated, and one would be lost."""
    spans = sorted((t.data_ptr(), t.data_ptr() + t.nbytes, name) for name, t in tensors.items() if t.nbytes)
    for (_, stop, name), (start, _, other) in itertools.pairwise(spans):
        if start < stop:
            raise BadInput(f"{name!r} and {other!r} share memory but are two tensors: use one tensor in both places")
