"""Guards of a script's model: the tensors stay those that joined, and their values are the job's.

Parameter servers hold the model as it joined. One that grows a head, is pruned or cast in the middle of the training
would be trained in part only, without any error; so each step looks whether the same tensors are there.

What a script writes into parameters in its loop counts where it trains alone, and is lost where parameter servers have
the values: it is refused everywhere. Version counters and places in memory of all parameters are compared around each
stretch of the script's own code: almost every write shows there. One through `.data` does not: so some windows of
values are compared too, others each time, which shows what is written again and again, or over whole tensors.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import is_

import torch
from torch import nn

from elastic_runtime.errors import BadInput, ModelMismatch

_Facts = tuple[torch.Size, torch.dtype, bool]
_ADVICE = "a model has to stay as it joins, change it before"
_WINDOWS = 4
_WINDOW_ELEMENTS = 2048
"""Copying and comparing so much takes some 30 µs."""


class ModelGuard:
    """Compares a model with what it was when this was made."""

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
                    f"{name} was {_reported(self._before[name])} when the model joined the job and is "
                    f"{_reported(now[name])}; {_ADVICE}"
                )
        now_tensors = list(self._model.parameters())
        if len(now_tensors) != len(self._tensors) or not all(map(is_, now_tensors, self._tensors)):
            raise ModelMismatch(f"a parameter of the model was replaced by another since it joined the job; {_ADVICE}")


class ParameterWatch:
    """Notices what a script writes into parameters, trained or not."""

    def __init__(self, model: nn.Module) -> None:
        self._named = list(model.named_parameters())
        self._tensors = [parameter for _, parameter in self._named]
        self._windows = _windows(self._tensors)
        self._copies: list[tuple[int, torch.Tensor, torch.Tensor]] = []
        self._awaited: list[tuple[int, str, torch.Tensor]] = []
        self.mark()

    def mark(self) -> None:
        """The values are the job's: what is written from now on is the script's."""
        self._versions = [tensor._version for tensor in self._tensors]
        self._places = [tensor.data_ptr() for tensor in self._tensors]
        self._copies = []
        for index, start, stop in itertools.islice(self._windows, min(_WINDOWS, len(self._tensors))):
            values = self._tensors[index].detach().view(-1)[start:stop].view(torch.uint8)
            self._copies.append((index, values, values.clone()))

    def check(self, when: str) -> None:
        """Whether anything was written since `mark`.

        Values on an accelerator are compared there, which is not waited for; see `settle`.

        Raises:
            BadInput: naming the first such parameter.
        """
        for index, tensor in enumerate(self._tensors):
            if tensor._version != self._versions[index] or tensor.data_ptr() != self._places[index]:
                raise self._refusal(index, when)
        for index, values, copy in sorted(self._copies, key=lambda row: row[0]):
            if values.device.type != "cpu":
                self._awaited.append((index, when, values.ne(copy).any()))
            elif not torch.equal(values, copy):
                raise self._refusal(index, when)

    def settle(self) -> None:
        """Wait for what accelerators have compared.

        Raises:
            BadInput: as `check`.
        """
        awaited, self._awaited = self._awaited, []
        for index, when, differs in awaited:
            if bool(differs):
                raise self._refusal(index, when)

    def _refusal(self, index: int, when: str) -> BadInput:
        return BadInput(
            f"parameter {self._named[index][0]!r} was written by the script {when}; once a model has joined, its "
            "parameters are the job's: give start values before, evaluate and average in a copy of the model"
        )


def _windows(tensors: Sequence[torch.Tensor]) -> Iterator[tuple[int, int, int]]:
    """Pieces of tensors in turn, for ever: index of the tensor, first element, last element + 1."""
    starts = {index: 0 for index, tensor in enumerate(tensors) if tensor.numel() and tensor.is_contiguous()}
    while starts:
        for index, start in starts.items():
            stop = min(start + _WINDOW_ELEMENTS, tensors[index].numel())
            yield index, start, stop
            starts[index] = stop % tensors[index].numel()


def _facts(model: nn.Module) -> dict[str, _Facts]:
    tensors: dict[str, torch.Tensor] = {f"parameter {name!r}": tensor for name, tensor in model.named_parameters()}
    tensors |= {f"buffer {name!r}": tensor for name, tensor in model.named_buffers()}
    return {name: (tensor.shape, tensor.dtype, tensor.requires_grad) for name, tensor in tensors.items()}


def _reported(facts: _Facts) -> str:
    shape, dtype, trained = facts
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}{'' if trained else ', not trained'}"


def _values(parts: Iterable[Mapping[str, object]]) -> Iterator[object]:
    return chain.from_iterable(part.values() for part in parts)
