"""The way in which a process trains, as a script's `Job` sees it: alone, by all-reduce or with parameter servers."""

from __future__ import annotations

import torch

from elastic_runtime.worker.batches import Batch


class TrainingMode:
    """One process's part in the training. `Job` calls it from the script's thread only.

    The class itself is the mode of a worker that came when its job did without it already: its script finds no batch,
    as if it had been removed.

    Attributes:
        name: `alone`, `all-reduce` or `parameter-server`.
    """

    name = "parameter-server"

    @property
    def is_first(self) -> bool:
        """Whether this is the one process of the job that reports, evaluates and saves."""
        return False

    @property
    def global_step(self) -> int:
        """How many global steps this process knows to be applied."""
        return 0

    @property
    def finished(self) -> bool:
        """Whether the job's last step is applied, and this process has the final model, buffers merged."""
        return False

    @property
    def stall_seconds(self) -> float:
        """How long this process has waited because of resizes; 0 where there are none."""
        return 0.0

    @property
    def is_drained(self) -> bool:
        """Whether this process alone was told to end, by SIGTERM that the script handles itself."""
        return False

    def next_batch(self) -> Batch | None:
        """The next slice to compute; waits until it may be computed. None: this process has nothing more to do.

        Raises:
            ElasticError: the job failed, or this worker was taken for dead.
        """
        return None

    def step(self, batch: Batch, loss: torch.Tensor | None, value: float | None) -> None:  # noqa: ARG002  # of all modes
        """Do the backward pass of `loss` and hand the gradient on, with what lies in the parameters' `grad` already.

        Both together are of the mean over `batch`. `loss` has been found to be a finite scalar; None: all of it lies
        there. `value` is what is to be shown of it, if anything.
        """
        raise RuntimeError("a step of a worker that has no part in the training")

    def synchronize(self) -> None:
        """Let the model have the values after the last step that was handed on, if waiting brings them."""

    def end(self) -> None:
        """End the whole job with the steps that all processes have computed; this process has that model then.

        No further batch is asked for, and the one in hand, if it got no step, is not computed.
        """

    def leave(self) -> None:
        """The script ends, as this process was told to: tell the others, quickly. Called once, before `close`."""

    def fail(self, error: BaseException) -> None:
        """The script ends by this error: tell the others, quickly. Called once, before `close`."""

    def close(self) -> None:
        """Give back sockets, threads and memory; the model stays usable. May be called again."""
