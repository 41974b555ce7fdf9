"""The job that a script trains with: batches, a step for each, and an end.

What a script does to its model or its gradients between two calls is looked at here, before any mode acts on it: what
one mode would honour and another would lose is refused in all of them, by the same line.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog
import torch
from torch import nn

from elastic_runtime.errors import BadInput, ElasticError
from elastic_runtime.model.data_shards import SampleOrder
from elastic_runtime.worker.batches import Batch
from elastic_runtime.worker.mode import TrainingMode
from elastic_runtime.worker.script_guards import ModelGuard, ParameterWatch, ScriptGradients, is_left_on_purpose

_SECOND_BACKWARD = "through the graph a second time"

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the job is, as this process knows it.

    Attributes:
        step: global steps applied.
        epoch: epochs done, with a fraction.
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
    loss over it. The loop ends when the job has finished, or when this process is needed no longer. A script that
    leaves it (`break`, `return`) ends the job, with what was trained.
    """

    def __init__(
        self, mode: TrainingMode, model: nn.Module, order: SampleOrder, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._mode = mode
        self._guard = ModelGuard(model)
        self._watch = ParameterWatch(model)
        self._gradients = ScriptGradients(model)
        self._order = order
        self._clock = clock
        self._began_seconds = clock()
        self._batch: Batch | None = None
        self._stepped = 0
        self._checked_epoch = -1
        self._samples = 0
        self._loss: float | None = None
        self._ended = False
        self._ended_after: int | None = None

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

    def __iter__(self) -> Iterator[Batch]:
        """The batches, one loop over all of them; one that is left on purpose ends the job.

        Raises:
            BadInput: a batch got no step, or the script did what not every mode honours; see `step`.
            ElasticError: the job failed.
        """
        if self._ended_after is not None:
            raise BadInput(
                f"the loop over the job's batches was left after step {self._ended_after}, which has ended the job; "
                "let one loop take them all (batch.ends_epoch is true where an epoch ends)"
            )
        return self._loop()

    def __next__(self) -> Batch:
        batch = self._next_batch()
        if batch is None:
            raise StopIteration
        return batch

    def step(self, loss: torch.Tensor | float | None = None) -> None:
        """Train with the batch that the loop gave last: backward pass, and this process's part of the global step.

        Gradients of `backward()` calls of the script's own since it got the batch count too, so that a batch may be
        computed in parts: the sum of all the losses is to be the mean over the batch's samples.

        Args:
            loss: the mean over the batch's samples, or the last part of it: a scalar that the parameters' gradients can
                be computed from. If the script has called `backward()` for all of it: a number to show, or nothing.

        Raises:
            BadInput: no batch to step for, no such loss, or parameters or gradients that the script has written.
            ModelMismatch: the model has changed since it joined.
            ElasticError: the loss, or an accumulated gradient, is not finite.
        """
        batch = self._batch
        if batch is None:
            again = f"job.step was called twice for the batch of step {self._stepped - 1}" if self._stepped else ""
            raise BadInput(f"{again or 'job.step was called before the first batch'}; call it once for each batch")
        self._guard.check()
        self._watch.check(f"in step {batch.step}")
        accumulated = self._gradients.end(batch.step)
        value = _value(loss, batch, accumulated)
        self._watch.await_comparisons()
        try:
            self._mode.step(batch, loss if isinstance(loss, torch.Tensor) else None, value)
        except RuntimeError as error:
            if _SECOND_BACKWARD in str(error):
                raise BadInput(
                    f"the loss of step {batch.step} went through backward() already; call job.step() without it"
                ) from error
            raise
        self._gradients.stepped()
        self._watch.mark()
        self._batch = None
        self._stepped = batch.step + 1
        self._samples += batch.size
        if value is not None:
            self._loss = value

    def synchronize(self) -> None:
        """Wait until the model holds the values after the step that was handed on last; all processes may call it.

        With parameter servers these come while the next batch is fetched; here is where a script that evaluates or
        saves in its loop waits for them. Elsewhere they are there already. Where a step cannot be completed by waiting,
        as the job changes or goes back to a checkpoint, the model stays the one before it.

        Raises:
            BadInput: the batch in hand has not got its step.
            ElasticError: the job failed, or this worker was taken for dead.
        """
        if self._batch is not None:
            raise BadInput(f"job.synchronize before the job.step of step {self._batch.step}; call it after that")
        if not self._ended:
            self._watch.check(self._after())
            self._mode.synchronize()
            self._watch.mark()

    def end(self) -> None:
        """End the whole job with the model as trained so far, as leaving the loop does; for callbacks.

        It ends after the last step that all processes have computed. This process then has that model, and the others
        come to the end of their loops.

        Raises:
            ElasticError: the job failed, or went back to a checkpoint meanwhile.
        """
        if self._ended:
            return
        if self._batch is None:
            self._watch.check(self._after())
        self._batch = None
        self._gradients.clear()
        self._mode.end()
        self.close()

    def fail(self, error: BaseException) -> None:
        """The script ends by this error: the job's other processes are told."""
        if not self._ended:
            self._mode.fail(error)
            self.close()

    def close(self) -> None:
        """Take no further part; a script whose loop ended need not call it."""
        self._ended = True
        self._gradients.close()
        self._mode.close()

    def script_ended(self) -> None:
        """The script is over; one that neither came to its loop's end nor left it has not finished its job.

        Unless SIGTERM came before, as to a spot node: then only this process is gone.
        """
        if self._ended:
            return
        if self._mode.is_drained:
            self._leave_alone()
        else:
            # In words: it is the last that the script says, and so what its launcher shows as the reason.
            print(
                f"the script ended at step {self.global_step} of {self.total_steps}, before its job did; let the loop "
                "come to its end, leave it by break, or call job.end()",
                file=sys.stderr,
                flush=True,
            )
            self.close()

    def _loop(self) -> Iterator[Batch]:
        while (batch := self._next_batch()) is not None:
            try:
                yield batch
            except GeneratorExit:
                if not self._ended and is_left_on_purpose():
                    self._leave()
                raise

    def _leave(self) -> None:
        """The script has left the loop; what is raised here would be lost, as the loop is over.

        After SIGTERM it has left the job to the others; else it has ended it.
        """
        if self._mode.is_drained:
            self._leave_alone()
            return
        self._ended_after = self._stepped - 1
        try:
            self.end()
        except ElasticError as error:
            # The job does not end so; the script's end will count as one before its job's.
            _log.error("loop-left-in-vain", error=str(error))
            self.close()

    def _leave_alone(self) -> None:
        """Go, as SIGTERM asked; the others go on."""
        try:
            self._mode.leave()
        except ElasticError as error:
            # Its silence says so, later.
            _log.warning("left-unheard", error=str(error))
        self.close()

    def _next_batch(self) -> Batch | None:
        if self._batch is not None:
            raise BadInput(f"the batch of step {self._batch.step} got no job.step(loss); each batch needs one")
        if self._ended:
            return None
        self._watch.check(self._after())
        self._gradients.check_none(self._stepped)
        batch = self._mode.next_batch()
        if batch is None:
            self.close()
            return None
        if batch.epoch != self._checked_epoch:
            self._guard.check_all()
            self._checked_epoch = batch.epoch
        self._watch.mark()
        self._gradients.begin()
        self._batch = batch
        return batch

    def _after(self) -> str:
        return f"after step {self._stepped - 1}" if self._stepped else "before the first step"


def _value(loss: object, batch: Batch, accumulated: bool) -> float | None:
    """The loss as a number, if it can be trained with; None if there is none to show."""
    if accumulated and loss is None:
        return None
    if loss is None:
        raise BadInput(
            f"job.step of step {batch.step} got no loss, and no backward() was called for the batch: give the mean "
            "over the batch, a scalar tensor"
        )
    if not (accumulated and isinstance(loss, int | float)):
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            what = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise BadInput(f"the loss of step {batch.step} is {what}; give the mean over the batch, a scalar tensor")
        if not loss.requires_grad:
            raise BadInput(
                f"the loss of step {batch.step} does not depend on the model's parameters; compute it with them"
            )
    value = float(loss.detach() if isinstance(loss, torch.Tensor) else loss)
    if not math.isfinite(value):
        raise ElasticError(
            f"the loss of step {batch.step} is {value}; nothing was trained with it: lower the learning rate, or clip"
        )
    return value
