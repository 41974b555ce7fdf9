"""Guards of what a script does between two calls of its job: to its model, its gradients, and the job's loop.

Parameter servers hold the model as it joined. One that grows a head, is pruned or cast in the middle of the training
would be trained in part only, without any error; so each step looks whether the same tensors are there.

What a script writes into parameters in its loop counts where it trains alone, and is lost where parameter servers have
the values: it is refused everywhere. Version counters and places in memory of all parameters are compared around each
stretch of the script's own code: almost every write shows there. One through `.data` does not: so some windows of
values are compared too, others each time, which shows what is written again and again, or over whole tensors.
"""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import chain
from operator import is_
from typing import Any

import torch
from torch import nn

from elastic_runtime.errors import BadInput, ElasticError, ModelMismatch

_LEAVING = frozenset({"POP_TOP", "POP_ITER", "END_FOR"})
"""What drops the iterator of a loop that `break` or `return` leaves, in CPython 3.11 to 3.14."""
_SUSPENDED = frozenset({"YIELD_VALUE", "RESUME"})
_WORDS_BY_BYTES = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_OWN = "elastic_runtime."
_ADVICE = "scale the loss instead, and clip by the optimizer's clip_norm"

Hook = Callable[[torch.Tensor], torch.Tensor | None]


class HookGuard:
    """Lets hooks that a script has put on parameters look at gradients, and refuses those that write.

    A hook sees the gradient of one worker's slice. One that changes it (clips it, adds noise) does that to the whole
    step's gradient where the script trains alone, and to each slice's elsewhere. A hook that runs once a gradient is
    accumulated does not even find it there, as the job has taken it by then.
    """

    def __init__(self, model: nn.Module) -> None:
        self._named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        # Of each parameter's hooks that run after it, the one that was looked at last: their numbers only grow.
        self._newest: list[object] = [None] * len(self._named)

    def check(self) -> None:
        """Have hooks that change a gradient raise BadInput from now on, before each backward pass that counts.

        Where no hook has come it costs some 60 µs for a model of 200 tensors.

        Raises:
            BadInput: a hook that runs after a gradient was accumulated.
        """
        for index, (name, parameter) in enumerate(self._named):
            after: MutableMapping[int, Any] | None = parameter._post_accumulate_grad_hooks
            if after and (newest := next(reversed(after))) != self._newest[index]:
                if not all(map(_is_own, after.values())):
                    raise BadInput(
                        f"parameter {name!r} has a hook of the script's that runs once its gradient is accumulated "
                        "(register_post_accumulate_grad_hook), which a job has taken away by then; remove it: the "
                        "job's optimizer applies gradients"
                    )
                self._newest[index] = newest
            before: MutableMapping[int, Hook] = parameter._backward_hooks or {}
            for number, hook in before.items():
                if not isinstance(hook, _Watched) and not _is_own(hook):
                    before[number] = _Watched(name, hook)

    def release(self) -> None:
        """Let the hooks be as the script made them."""
        for _, parameter in self._named:
            hooks: MutableMapping[int, Hook] = parameter._backward_hooks or {}
            for number, hook in hooks.items():
                if isinstance(hook, _Watched):
                    hooks[number] = hook.hook


class _Watched:
    def __init__(self, name: str, hook: Hook) -> None:
        self.hook = hook
        self._name = name

    def __call__(self, gradient: torch.Tensor) -> torch.Tensor | None:
        before = fingerprint(gradient)
        answer = self.hook(gradient)
        if (answer is not None and answer is not gradient) or not torch.equal(fingerprint(gradient), before):
            raise BadInput(
                f"a hook of the script's changes the gradient of parameter {self._name!r}; it sees one worker's slice "
                f"only: {_ADVICE}"
            )
        return answer


def fingerprint(gradient: torch.Tensor) -> torch.Tensor:
    """The sum of a gradient's bits, as a scalar on its device: one pass over it, which is not waited for."""
    values = _values(gradient.detach())
    if values.is_complex():
        values = torch.view_as_real(values)
    return values.view(_WORDS_BY_BYTES[values.element_size()]).sum(dtype=torch.int64)


def _is_own(hook: Any) -> bool:
    function = hook.func if isinstance(hook, functools.partial) else hook
    return type(getattr(function, "__self__", None)).__module__.startswith(_OWN)


class ScriptGradients:
    """Gradients that a script accumulates by `backward()` between a batch and its step.

    They are gradients of this worker's slice only. What is done to them (clipping, scaling) would be done to the whole
    step's where the script trains alone, and to a part of it elsewhere: so they are to be as `backward()` left them.
    """

    def __init__(self, model: nn.Module) -> None:
        self._named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        self._hook_guard = HookGuard(model)
        self._made: dict[torch.Tensor, tuple[torch.Tensor, int, torch.Tensor]] = {}
        self._open = False
        self._came: set[torch.Tensor] | None = None
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._note)  # type: ignore[no-untyped-call]  # torch's
            for _, parameter in self._named
        ]

    def check_none(self, step: int) -> None:
        """Before the batch of a step is given out.

        Raises:
            BadInput: a gradient lies there, or a hook, which would count in some modes.
        """
        self._hook_guard.check()
        for name, parameter in self._named:
            if parameter.grad is not None:
                raise BadInput(
                    f"parameter {name!r} has a gradient before the batch of step {step}; call backward() between a "
                    "batch and its job.step, and model.zero_grad() after one that is not to count"
                )

    def begin(self) -> None:
        """A batch is given out: what `backward()` adds from now on counts."""
        self._open = True
        self._came = None

    def end(self, step: int) -> bool:
        """The batch's step has come; whether there are any gradients. What comes now is the step's one backward pass.

        Raises:
            BadInput: somebody else than `backward()` wrote them, or a hook would.
            ElasticError: they are not finite.
        """
        self._open = False
        self._came = set()
        self._hook_guard.check()
        made, self._made = self._made, {}
        found = [(name, parameter, parameter.grad) for name, parameter in self._named if parameter.grad is not None]
        for name, parameter, gradient in found:
            before = made.get(parameter)
            if before is None or before[0] is not gradient or before[1] != gradient._version:
                raise _changed(name, step)
        if found:
            # One through `.data`, or through an array, which no version counts.
            now = torch.stack([fingerprint(gradient) for _, _, gradient in found])
            differs = now != torch.stack([made[parameter][2] for _, parameter, _ in found])
            if bool(differs.any()):
                raise _changed(found[int(differs.nonzero()[0])][0], step)
        gradients = [gradient for _, _, gradient in found]
        if not all(bool(gradient.isfinite().all()) for gradient in map(_values, gradients)):
            raise ElasticError(
                f"the gradients of step {step} are not finite; nothing was trained with them: lower the learning rate"
            )
        return bool(found)

    def stepped(self) -> None:
        """The step's backward pass is over."""
        self._came = None

    def clear(self) -> None:
        """Forget the gradients."""
        self._open = False
        self._came = None
        self._made.clear()
        for _, parameter in self._named:
            parameter.grad = None

    def close(self) -> None:
        """Let the model's gradients be."""
        for hook in self._hooks:
            hook.remove()
        self._hook_guard.release()

    def _note(self, parameter: torch.Tensor) -> None:
        """Called by autograd for each tensor, once in a backward pass; for each of those that are within another one.

        Raises:
            BadInput: in the step's own pass a second time: the first part was taken for the whole.
        """
        if self._open and parameter.grad is not None:
            self._made[parameter] = (parameter.grad, parameter.grad._version, fingerprint(parameter.grad))
        if self._came is None:
            return
        if parameter in self._came:
            name = next(name for name, known in self._named if known is parameter)
            raise BadInput(
                f"parameter {name!r} got its gradient in two parts within one backward pass; where checkpoints share a "
                "parameter, use torch.utils.checkpoint with use_reentrant=False"
            )
        self._came.add(parameter)


def _changed(name: str, step: int) -> BadInput:
    return BadInput(
        f"the gradient of parameter {name!r} was changed after backward() in step {step}; it is that of one worker's "
        f"slice: {_ADVICE}"
    )


def _values(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def is_left_on_purpose() -> bool:
    """Whether the loop, whose iterator is being closed, was left by `break` or `return`, and not by an exception.

    Call it from the iterator itself, a generator. An exception on its way cannot be seen there, but the instruction at
    which the loop's frame stands: one that drops the iterator, or one that raised. Where this cannot be told, as with
    an interpreter that has other instructions, the answer is no: the script's end is then taken for a failure.
    """
    frame = sys._getframe(1).f_back
    while frame is not None:
        instruction = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        if not (frame.f_code.co_flags & inspect.CO_GENERATOR and instruction in _SUSPENDED):
            return instruction in _LEAVING
        frame = frame.f_back  # a generator around the batches, such as a progress bar, that is being closed itself
    return False


_Facts = tuple[torch.Size, torch.dtype, bool]
_AS_IT_JOINED = "a model has to stay as it joins, change it before"
_WINDOWS = 4
_WINDOW_ELEMENTS = 2048
"""Copying and comparing so much takes some 30 µs."""


class ModelGuard:
    """Compares a model with its state at the join."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._before = _facts(model)
        # A module keeps its parameters and its own modules in these dictionaries; they say sooner than names do whether
        # something was added, removed or replaced.
        self._parts = [part for module in model.modules() for part in (module._parameters, module._modules)]
        self._had = list(_members(self._parts))
        self._tensors = list(model.parameters())
        self._had_facts = [(tensor.shape, tensor.dtype, tensor.requires_grad) for tensor in self._tensors]

    def check(self) -> None:
        """For every step: the same tensors in the same modules. Some 150 µs for a model of 200 tensors.

        Raises:
            ModelMismatch: naming the first tensor that is new, gone or another.
        """
        now = list(_members(self._parts))
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
                raise ModelMismatch(f"{name} is gone from the model since it joined the job; {_AS_IT_JOINED}")
            if name not in self._before:
                raise ModelMismatch(f"{name} is new in the model since it joined the job; {_AS_IT_JOINED}")
            if now[name] != self._before[name]:
                raise ModelMismatch(
                    f"{name} was {_reported(self._before[name])} when the model joined the job and is "
                    f"{_reported(now[name])}; {_AS_IT_JOINED}"
                )
        now_tensors = list(self._model.parameters())
        if len(now_tensors) != len(self._tensors) or not all(map(is_, now_tensors, self._tensors)):
            raise ModelMismatch(
                f"a parameter of the model was replaced by another since it joined the job; {_AS_IT_JOINED}"
            )


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

        Values on an accelerator are compared there, which is not waited for; see `await_comparisons`.

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

    def await_comparisons(self) -> None:
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


def _members(parts: Iterable[Mapping[str, object]]) -> Iterator[object]:
    return chain.from_iterable(part.values() for part in parts)
