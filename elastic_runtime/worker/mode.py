"""The way in which a process trains, as a script's `Job` sees it: alone, by all-reduce, with parameter servers, or not.

A worker that came when its job did without it already has a mode too: its script finds no batch, as if it had been
removed.
"""

from __future__ import annotations

from typing import Protocol

import structlog
import torch

from elastic_runtime.worker.batches import Batch

_log = structlog.get_logger()


class TrainingMode(Protocol):
    """One process's part in the training. `Job` calls it from the script's thread only."""

    name: str
    """`alone`, `all-reduce` or `parameter-server`."""

    @property
    def is_first(self) -> bool:
        """Whether this is the one process of the job that reports, evaluates and saves."""
        ...

    @property
    def global_step(self) -> int:
        """How many global steps this process knows to be applied."""
        ...

    @property
    def finished(self) -> bool:
        """Whether the job's last step is applied, and this process has the final model, buffers merged."""
        ...

    @property
    def stall_seconds(self) -> float:
        """How long this process has waited because of resizes; 0 where there are none."""
        ...

    @property
    def is_drained(self) -> bool:
        """Whether this process alone was told to end, by SIGTERM that the script handles itself."""
        ...

    def next_batch(self) -> Batch | None:
        """The next slice to compute; waits until it may be computed. None: this process has nothing more to do."""
        ...

    def step(self, batch: Batch, loss: torch.Tensor | None, value: float | None) -> None:
        """Do the backward pass of `loss` and hand the gradient on, with what lies in the parameters' `grad` already.

        Both together are of the mean over `batch`. `loss` has been found to be a finite scalar; None: all of it lies
        there. `value` is what is to be shown of it, if anything.
        """
        ...

    def synchronize(self) -> None:
        """Let the model have the values after the last step that was handed on, if waiting brings them."""
        ...

    def end(self) -> None:
        """End the whole job with the steps that all processes have computed; this process has that model then.

        No further batch is asked for, and the one in hand, if it got no step, is not computed.
        """
        ...

    def leave(self) -> None:
        """The script ends, as this process was told to: tell the others, quickly. Called once, before `close`."""
        ...

    def fail(self, error: BaseException) -> None:
        """The script ends by this error: tell the others, quickly. Called once, before `close`."""
        ...

    def close(self) -> None:
        """Give back sockets, threads and memory; the model stays usable. May be called again."""
        ...


class NotNeededMode:
    """No part in the training."""

    name = "parameter-server"
    is_first = False
    global_step = 0
    finished = False
    is_drained = False
    stall_seconds = 0.0

    def __init__(self, why: str) -> None:
        _log.warning("worker-dismissed", why=why)

    def next_batch(self) -> Batch | None:
        """There is none."""
        return None

    def step(self, batch: Batch, loss: torch.Tensor | None, value: float | None) -> None:  # noqa: ARG002  # as of all
        """Cannot be asked for: no batch was given out.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("a step of a worker that has no part in the training")

    def synchronize(self) -> None:
        """There are no values."""

    def end(self) -> None:
        """It is not this process's job to end."""

    def leave(self) -> None:
        """Nobody has to know."""

    def fail(self, error: BaseException) -> None:
        """Nobody has to know."""

    def close(self) -> None:
        """Nothing is open."""
