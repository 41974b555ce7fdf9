"""A worker that came when its job did without it already: its script finds no batch, as if it had been removed."""

from __future__ import annotations

import structlog
import torch

from elastic_runtime.worker.batches import Batch

_log = structlog.get_logger()


class NotNeededMode:
    """No part in the training.

    Args:
        why: the coordinator's words, for the log.
    """

    name = "parameter-server"
    is_first = False
    global_step = 0
    finished = False
    stall_seconds = 0.0

    def __init__(self, why: str) -> None:
        _log.warning("not_needed", why=why)

    def next_batch(self) -> Batch | None:
        """There is none."""
        return None

    def step(self, batch: Batch, loss: torch.Tensor) -> None:  # noqa: ARG002  # as of every mode
        """Cannot be asked for: no batch was given out.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("a step of a worker that has no part in the training")

    def fail(self, error: BaseException) -> None:
        """Nobody has to know."""

    def close(self) -> None:
        """Nothing is open."""
