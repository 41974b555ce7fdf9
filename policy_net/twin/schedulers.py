"""Schedulers whose decisions the compiled code takes: which classes they are, and what each plans on.

A policy is covered if it is exactly of a class that is named here: what somebody derived from it may decide otherwise.
Classes are named, not imported: whoever replays one scheduler loads none of the others, and a figure's version
(`benchmarks.policy_quality.version`) goes on to follow from its own scheduler alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from policy_net.domain import SpeedModel
from policy_net.policy import SchedulerPolicy
from policy_net.throughput.by_type import BeliefsByType


class Scheduler(IntEnum):
    """Codes, as `core/twin.h` has them."""

    SET = 0
    FIFO = 1
    FIFO_BACKFILL = 2
    FIFO_EASY = 3
    LAS = 4
    SRTF = 5
    DRF = 6
    DRF_PEAK = 7
    TETRIS = 8
    OPTIMUS = 9
    OPTIMUS_SR = 10
    MARGINAL = 11
    DRF_AUTHORS = 12
    SRTF_AUTHORS = 13
    TETRIS_AUTHORS = 14
    OPTIMUS_AUTHORS = 15


@dataclass(frozen=True, slots=True)
class Heuristic:
    """A heuristic as the compiled code knows it.

    Attributes:
        speeds: what it plans on, of a model that does not learn; None if it needs none, or learns them.
        beliefs: what it learns, and plans on.
    """

    code: Scheduler
    speeds: SpeedModel | None = None
    beliefs: BeliefsByType[Any] | None = None


def heuristic_of(policy: SchedulerPolicy) -> Heuristic | None:
    """The policy as the compiled code knows it; None if it does not."""
    kind = type(policy)
    described = _HEURISTICS.get((kind.__module__, kind.__qualname__))
    # A class may say any name of itself.
    if described is None or getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is not kind:
        return None
    return described(policy)


def _fifo(policy: Any) -> Heuristic:
    return Heuristic(Scheduler.FIFO_BACKFILL if policy.backfill else Scheduler.FIFO)


_BASELINES = "policy_net.baselines"
_HEURISTICS: dict[tuple[str, str], Callable[[Any], Heuristic | None]] = {
    (f"{_BASELINES}.fifo", "FifoPolicy"): _fifo,
}
"""By module and class: what describes such a policy; None of one that is for the reference."""
