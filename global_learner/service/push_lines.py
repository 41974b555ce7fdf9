"""Log lines of pushed updates: one each, and of a flood that changes nothing the first and how many followed.

What is answered faster than its cluster may send updates (`is_beyond_rate`), a duplicate or a rejection, is told of by
number. Every update is counted all the same (`fedl2_learner_updates_total`, `fedl2_learner_rejections_total`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from global_learner.folded_lines import OTHERS, FoldedLines, Later, on_loop
from global_learner.updates.pushes import UpdateAnswer
from policy_net.exchange.wire import GradientUpdate

_log = structlog.get_logger()


class PushLines:
    """The canonical line of each update, for one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, later: Later = on_loop) -> None:
        self._lines: FoldedLines[tuple[str, str]] = FoldedLines(lambda key: (OTHERS, key[1]), _tell, clock, later)

    def on_answer(self, update: GradientUpdate, answer: UpdateAnswer, seconds: float) -> None:
        """Log an update, or count it into the line to come; `seconds` are what it took."""
        if answer.is_beyond_rate and not self._lines.first((update.cluster, answer.reason or answer.outcome)):
            return
        _log.info(
            "update-answered",
            cluster=update.cluster,
            incarnation=update.incarnation,
            sequence=update.sequence,
            outcome=answer.outcome.value,
            reason=answer.reason or None,
            detail=answer.detail or None,
            base_step=update.base_step,
            head_step=answer.head_step,
            staleness=answer.staleness,
            active_clusters=answer.active_clusters,
            learning_rate=answer.learning_rate,
            gradient_norm=round(answer.gradient_norm, 6),
            clipped=answer.clipped or None,
            samples=update.samples,
            effective_samples=round(update.effective_samples, 1),
            milliseconds=round(seconds * 1000.0, 2),
        )


def _tell(key: tuple[str, str], updates: int, seconds: float) -> None:
    cluster, outcome = key
    _log.warning("updates-answered", cluster=cluster, outcome=outcome, updates=updates, seconds=round(seconds, 1))
