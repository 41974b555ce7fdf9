"""Keeper of one process's part in what outlives the processes of an all-reduce job: its checkpoint and its progress.

Parameters and the optimizer's state are the same in all processes after each step, so the first one's are the job's.
Buffers are merged before a checkpoint at which all stop; one that is written in between holds the first process's.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from io import BytesIO
from typing import Any, Protocol

import structlog
import torch
from torch import nn

from elastic_runtime.checkpoint.rank_files import Meeting, RankFiles, RankProgress
from elastic_runtime.errors import CheckpointError, ModelMismatch
from elastic_runtime.model.data_shards import SampleOrder
from elastic_runtime.model.layout import Layout
from elastic_runtime.worker.ranks.process_group import ProcessGroup
from elastic_runtime.worker.ranks.rank_pod import RankPod

_log = structlog.get_logger()


STOP, MEET = 1, 2
"""What all processes may be wished to do after a step: stop with a checkpoint, or form another group."""


def saved(content: dict[str, Any]) -> bytes:
    """A state on its way to another process."""
    buffer = BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


@dataclass(frozen=True, slots=True)
class Reach:
    """How far so many steps are, for whoever asks."""

    samples: int
    epoch: float
    total_epochs: float
    total_steps: int

    @classmethod
    def of(cls, order: SampleOrder, step: int) -> Reach:
        """In the order of a job's samples."""
        epochs, steps = divmod(step, order.steps_per_epoch)
        in_epoch = order.steps_per_epoch * order.global_batch if order.drop_last else order.samples
        samples = epochs * in_epoch + steps * order.global_batch
        return cls(samples, step / order.steps_per_epoch, order.total_steps / order.steps_per_epoch, order.total_steps)


class KeptState(Protocol):
    """What a step changes, as a checkpoint holds it."""

    def content(self, step: int) -> dict[str, Any]:
        """Content of a checkpoint after this number of steps."""
        ...

    def take(self, content: dict[str, Any]) -> int:
        """Become what a checkpoint holds; the steps that it has."""
        ...


@dataclass(frozen=True, slots=True)
class RankState:
    """What a step of `join`'s training changes."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    layout: Layout

    def content(self, step: int) -> dict[str, Any]:
        """Content of a checkpoint after this number of steps."""
        return {
            "step": step,
            "layout": self.layout.to_json(),
            "tensors": [tensor.detach().cpu() for tensor in self._tensors()],
            "optimizer": self.optimizer.state_dict(),
        }

    def take(self, content: dict[str, Any]) -> int:
        """Become what a checkpoint holds; the steps that it has.

        Raises:
            ModelMismatch: it is of another model.
        """
        if content["layout"] != self.layout.to_json():
            raise ModelMismatch("the job's checkpoint is of another model; submit the changed script as another job")
        with torch.no_grad():
            for tensor, kept in zip(self._tensors(), content["tensors"], strict=True):
                tensor.copy_(kept)
        self.optimizer.load_state_dict(content["optimizer"])
        return int(content["step"])

    def _tensors(self) -> list[torch.Tensor]:
        return [*self.model.parameters(), *self.model.buffers()]


class RankKeeper:
    """One process's part.

    Args:
        reach: how far so many steps are.

    Attributes:
        live: whether the training can go on in another group.
    """

    def __init__(
        self,
        files: RankFiles,
        state: KeptState,
        reach: Callable[[int], Reach],
        group: ProcessGroup,
        pod: RankPod | None = None,
        *,
        live: bool = False,
    ) -> None:
        self.live = live
        self._files = files
        self._state = state
        self._reach = reach
        self._group = group
        self._pod = pod
        self._is_first = group.rank == 0
        self._stall_seconds = 0.0

    @property
    def stop_requested(self) -> bool:
        """Whether this process was told that all are to stop: by a file the first one, as a pod any.

        The others hear it from that one.
        """
        return (self._is_first and self._files.stop_requested) or (self._pod is not None and self._pod.stop_requested)

    @property
    def wish(self) -> int:
        """What all are to do after this step: nothing (0), `STOP` or `MEET`."""
        if self.stop_requested:
            return STOP
        return MEET if self._is_first and self.live and self._files.meeting() is not None else 0

    def regroup(self, step: int) -> bool:
        """Form the group that is wished for, with the state of the first process; whether this one is in it.

        Raises:
            ElasticError: the others do not come.
        """
        began = time.monotonic()
        mine = self._files.meeting() if self._is_first else None
        told = json.loads(self._group.bytes_of_first(json.dumps(asdict(mine)).encode() if mine else b"{}") or b"{}")
        if not told:  # taken back since
            return True
        meeting, before = Meeting(**told), self._group.size
        if self._group.rank >= meeting.workers:
            return False
        self._meet(meeting.number, meeting.workers)
        if meeting.workers > before:
            self._group.bytes_of_first(saved(self._state.content(step)) if self._is_first else b"")
        if self._is_first:
            self._files.forget_meetings()
        self._stall_seconds += time.monotonic() - began
        self._report(step, finished=False, at_once=True)
        _log.info("regrouped", number=meeting.number, workers=meeting.workers, step=step)
        return True

    def join_running(self, number: int) -> int:
        """Wait for the others, which train, and become what they are; the steps that are done.

        Raises:
            ElasticError: they do not come.
            ModelMismatch: they train another model.
        """
        self._files.say_ready(number, self._group.rank)
        self._meet(number, self._group.size)
        return self._state.take(torch.load(BytesIO(self._group.bytes_of_first(b"")), weights_only=True))

    def _meet(self, number: int, workers: int) -> None:
        self._group.meet(workers, partial(self._files.say_port, number), partial(self._files.port_of, number))

    def begin(self) -> int:
        """Go on from the newest checkpoint, if there is one; the steps that are done.

        Raises:
            CheckpointError: it cannot be read, or others have read another one.
            ModelMismatch: it is of another model.
        """
        content = self._files.load()
        step = 0 if content is None else self._state.take(content)
        first = int(self._group.bytes_of_first(str(step).encode()))
        if not self._group.all_true(step == first):
            raise CheckpointError(f"{self._files.checkpoint_file}: another process has read another checkpoint")
        self._report(step, finished=0 < self._reach(step).total_steps <= step)
        return step

    def after_step(self, step: int, *, finished: bool, stopped: bool) -> None:
        """Write down what is due after a number of applied steps.

        Raises:
            CheckpointError: the checkpoint at which all stop cannot be written.
        """
        if self._is_first and (finished or stopped):
            self._files.save(self._state.content(max(step, self._reach(step).total_steps) if finished else step))
        elif self._is_first and self._files.checkpoint_due:
            try:
                self._files.save(self._state.content(step))
            except CheckpointError as error:  # the one before stands, and the next one may be written
                _log.warning("checkpoint-not-written", error=str(error))
        self._report(step, finished=finished, stopped=stopped)

    def _report(self, step: int, *, finished: bool, stopped: bool = False, at_once: bool = False) -> None:
        reach = self._reach(step)
        progress = RankProgress(
            processes=self._group.size,
            pid=os.getpid(),
            step=step,
            samples=reach.samples,
            epoch=reach.epoch,
            total_epochs=reach.total_epochs,
            finished=finished,
            live=self.live,
            stall_seconds=self._stall_seconds,
        )
        if self._is_first:
            self._files.report(progress, at_once=at_once or finished or stopped)
        if self._pod is not None:
            self._pod.report(progress, reach.total_steps, stopped=stopped)
