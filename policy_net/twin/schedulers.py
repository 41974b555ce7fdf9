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
from policy_net.throughput.beliefs import BeliefsByType


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
    DL2 = 12


@dataclass(frozen=True, slots=True)
class Heuristic:
    """A heuristic, or a `dl2` network, as the compiled code knows it.

    Attributes:
        speeds: what it plans on, of a model that does not learn; None if it needs none, or learns them.
        network: the policy whose network decides.
    """

    code: Scheduler
    speeds: SpeedModel | None = None
    beliefs: BeliefsByType[Any] | None = None
    network: Any = None


def heuristic_of(policy: SchedulerPolicy) -> Heuristic | None:
    """The policy as the compiled code knows it; None if it does not."""
    kind = type(policy)
    described = _HEURISTICS.get((kind.__module__, kind.__qualname__))
    return described(policy) if described and _is_exactly(policy, kind.__module__, kind.__qualname__) else None


def _is_exactly(thing: object, module: str, name: str) -> bool:
    """Whether a thing is of the class of this name; a class may say any name of itself."""
    return getattr(sys.modules.get(module), name, None) is type(thing)


def _fifo(policy: Any) -> Heuristic:
    return Heuristic(Scheduler.FIFO_BACKFILL if policy.backfill else Scheduler.FIFO)


def _easy(policy: Any) -> Heuristic | None:
    # Where it fits speeds itself, nobody asks for many replays.
    return None if policy.given_speeds is None else Heuristic(Scheduler.FIFO_EASY, speeds=policy.given_speeds)


def _unlearning(code: Scheduler) -> Callable[[Any], Heuristic]:
    return lambda _: Heuristic(code)


def _believing(code: Scheduler) -> Callable[[Any], Heuristic | None]:
    """On beliefs of its own; those of somebody else's making are for the reference."""
    return lambda policy: Heuristic(code, beliefs=policy.beliefs) if _is_exactly(policy.beliefs, *_FIT) else None


def _planning(code: Scheduler, beliefs: tuple[str, str]) -> Callable[[Any], Heuristic | None]:
    """On speeds that it was given, or on beliefs of its own of this class, module and name."""

    def described(policy: Any) -> Heuristic | None:
        if policy.beliefs is None:
            return Heuristic(code, speeds=policy.speeds)
        known = policy.beliefs is policy.speeds and _is_exactly(policy.beliefs, *beliefs)
        return Heuristic(code, beliefs=policy.beliefs) if known else None

    return described


_FIT = ("policy_net.throughput.parametric", "OnlineFit")
_GAUSSIAN = ("policy_net.throughput.gaussian_process", "GaussianProcessBeliefs")
"""The former are probed for what they do not know; the latter hope for it."""
_BASELINES = "policy_net.baselines"
_HEURISTICS: dict[tuple[str, str], Callable[[Any], Heuristic | None]] = {
    (f"{_BASELINES}.fifo", "FifoPolicy"): _fifo,
    (f"{_BASELINES}.fifo", "EasyPolicy"): _easy,
    (f"{_BASELINES}.las", "LasPolicy"): _unlearning(Scheduler.LAS),
    (f"{_BASELINES}.srtf", "SrtfPolicy"): _believing(Scheduler.SRTF),
    (f"{_BASELINES}.drf", "DrfPolicy"): _unlearning(Scheduler.DRF),
    (f"{_BASELINES}.drf", "DrfPeakPolicy"): _believing(Scheduler.DRF_PEAK),
    (f"{_BASELINES}.tetris", "TetrisPolicy"): _believing(Scheduler.TETRIS),
    (f"{_BASELINES}.optimus", "OptimusPolicy"): _planning(Scheduler.OPTIMUS, _FIT),
    (f"{_BASELINES}.optimus", "OptimusSrPolicy"): _planning(Scheduler.OPTIMUS_SR, _FIT),
    (f"{_BASELINES}.marginal", "MarginalPolicy"): _planning(Scheduler.MARGINAL, _GAUSSIAN),
    ("policy_net.dl2.policy", "LearnedPolicy"): lambda policy: Heuristic(Scheduler.DL2, network=policy),
    ("policy_net.dl2.group", "DrawingPolicy"): lambda policy: (
        Heuristic(Scheduler.DL2, beliefs=policy.beliefs, network=policy)
        if _is_exactly(policy.beliefs, *_GAUSSIAN)
        else None
    ),
}
"""By module and class: what describes such a policy; None of one that is for the reference."""
