"""The job that a script trains with: an iterator over batches, a step for each, and a guard of the model.

Parameter servers hold the model as it joined. One that grows a head, is pruned or cast in the middle of the training
would be trained in part only, without any error; so each step looks whether the same tensors are there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import is_
from typing import Self

import torch
from torch import nn

from elastic_runtime.errors import BadInput, ElasticError, ModelMismatch
from elastic_runtime.model.data_shards import SampleOrder
from elastic_runtime.worker.batches import Batch
from elastic_runtime.worker.mode import Mode

_Facts = tuple[torch.Size, torch.dtype, bool]
_ADVICE = "a model has to stay as it joins, change it before"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the job is, as this process knows it.

    Attributes:
        step: global steps applied.
        total_steps: of the whole job.
        epoch: epochs done, with a fraction.
        total_epochs: of the whole job.
        samples: that this process has computed.
        loss: of the last batch that it computed; None before.
        samples_per_second: of this process, since it joined.
        stall_seconds: how long it waited because of resizes.
    """

    step: int
    total_steps: int
    epoch: float
    total_epochs: int
    samples: int
    loss: float | None
    samples_per_second: float
    stall_seconds: float


class Job:
    """A job that this process takes part in; made by `join`.

    `for batch in job` gives the slices that this process is to compute, each to be answered by one `step` with the mean
    loss over it. The loop ends when the job has finished, or when this process is needed no longer.

    Args:
        mode: how the process trains.
        guard: of the model.
        order: of the samples.
        clock: seconds, monotonic.
    """

    def __init__(
        self, mode: Mode, guard: ModelGuard, order: SampleOrder, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._mode = mode
        self._guard = guard
        self._order = order
        self._clock = clock
        self._began_seconds = clock()
        self._batch: Batch | None = None
        self._stepped = 0
        self._checked_epoch = -1
        self._samples = 0
        self._loss: float | None = None
        self._ended = False

    @property
    def mode(self) -> str:
        """How this process trains: `alone`, `all-reduce` or `parameter-server`."""
        return self._mode.name

    @property
    def finished(self) -> bool:
        """Whether the whole training is done; False after the loop means that this worker was removed, or suspended."""
        return self._mode.finished

    @property
    def is_first(self) -> bool:
        """True in exactly one process of the job: the one that is to evaluate, print and save."""
        return self._mode.is_first

    @property
    def global_step(self) -> int:
        """Global steps applied, as this process knows."""
        return self._mode.global_step

    @property
    def total_steps(self) -> int:
        """Global steps of the whole job."""
        return self._order.total_steps

    @property
    def epoch(self) -> int:
        """The epoch that is being computed, from 0; after the last one, how many there were."""
        return self.global_step // self._order.steps_per_epoch

    @property
    def progress(self) -> Progress:
        """How far it is."""
        seconds = self._clock() - self._began_seconds
        return Progress(
            step=self.global_step,
            total_steps=self.total_steps,
            epoch=self.global_step / self._order.steps_per_epoch,
            total_epochs=self._order.epochs,
            samples=self._samples,
            loss=self._loss,
            samples_per_second=self._samples / seconds if seconds > 0 else 0.0,
            stall_seconds=self._mode.stall_seconds,
        )

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        if self._batch is not None:
            raise BadInput(f"the batch of step {self._batch.step} got no job.step(loss); each batch needs one")
        batch = None if self._ended else self._mode.next_batch()
        if batch is None:
            self.close()
            raise StopIteration
        if batch.epoch != self._checked_epoch:
            self._guard.check_all()
            self._checked_epoch = batch.epoch
        self._batch = batch
        return batch

    def step(self, loss: torch.Tensor) -> None:
        """Train with the batch that the loop gave last: backward pass, and this process's part of the global step.

        Args:
            loss: the mean over the batch's samples, a scalar that the parameters' gradients can be computed from.

        Raises:
            BadInput: no batch to step for, or no such loss.
            ModelMismatch: the model has changed since it joined.
            ElasticError: the loss is not finite.
        """
        batch = self._batch
        if batch is None:
            again = f"job.step was called twice for the batch of step {self._stepped - 1}" if self._stepped else ""
            raise BadInput(f"{again or 'job.step was called before the first batch'}; call it once for each batch")
        self._guard.check()
        value = _value(loss, batch)
        self._mode.step(batch, loss)
        self._batch = None
        self._stepped = batch.step + 1
        if not batch.warm_up:
            self._samples += batch.size
            self._loss = value

    def fail(self, error: BaseException) -> None:
        """The script ends by this error: the job's other processes are told."""
        if not self._ended:
            self._mode.fail(error)
            self.close()

    def close(self) -> None:
        """Take no further part; a script whose loop ended need not call it."""
        self._ended = True
        self._mode.close()


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


def _value(loss: object, batch: Batch) -> float:
    """The loss as a number, if it can be trained with."""
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        what = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise BadInput(f"the loss of step {batch.step} is {what}; give the mean over the batch, a scalar tensor")
    if not loss.requires_grad:
        raise BadInput(f"the loss of step {batch.step} does not depend on the model's parameters; compute it with them")
    value = float(loss.detach())
    if not math.isfinite(value):
        raise ElasticError(
            f"the loss of step {batch.step} is {value}; nothing was trained with it: lower the learning rate, or clip"
        )
    return value


def _facts(model: nn.Module) -> dict[str, _Facts]:
    tensors: dict[str, torch.Tensor] = {f"parameter {name!r}": tensor for name, tensor in model.named_parameters()}
    tensors |= {f"buffer {name!r}": tensor for name, tensor in model.named_buffers()}
    return {name: (tensor.shape, tensor.dtype, tensor.requires_grad) for name, tensor in tensors.items()}


def _told(facts: _Facts) -> str:
    shape, dtype, trained = facts
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}{'' if trained else ', not trained'}"


def _values(parts: Iterable[Mapping[str, object]]) -> Iterator[object]:
    return chain.from_iterable(part.values() for part in parts)
