"""Section of load: how many GPUs were in use and how many jobs waited, over time, under one scheduler or several.

There is a part for the fleet and one for every cluster; the reader chooses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foundation.figures import duration, percent
from global_learner.report.words import listed
from policy_net.exchange.generated import fleet_pb2

Amount = float | None
"""None at a moment of which nothing is known."""


@dataclass(frozen=True, slots=True)
class SchedulerLoad:
    """One scheduler's load, at the moments of its scope.

    Attributes:
        label: name of the scheduler for people.
        used: GPUs in use.
        waiting: jobs that wait.
        of_own: whether it replays what really happened, and is drawn in its colour.
    """

    label: str
    used: Sequence[Amount]
    waiting: Sequence[Amount]
    of_own: bool = False


@dataclass(frozen=True, slots=True)
class LoadScope:
    """One choice of the reader: a cluster, or several together, under each scheduler.

    Attributes:
        seconds: moments that all curves share, rising: since a beginning, or Unix seconds.
        gpus: that there were at each; 0 where there is none, or it is not known.
        curves: the proposed policy's, or what really happened, last.
        axis: kind of time, such as `simulated time`.
        note: source of the figures, in whole sentences.
        real: whether the moments are Unix seconds.
        times: average completion times, in the order of the curves; empty where they stand elsewhere, or are not known.
    """

    name: str
    seconds: Sequence[float]
    gpus: Sequence[float]
    curves: Sequence[SchedulerLoad]
    axis: str
    note: str
    real: bool = False
    times: Sequence[tuple[str, float]] = ()


def load_section(scopes: Sequence[LoadScope]) -> dict[str, Any] | None:
    """Both charts of every scope with something to see; None without any."""
    parts = [part for scope in scopes if (part := _part(scope)) is not None]
    return {"scopes": parts} if parts else None


def _part(scope: LoadScope) -> dict[str, Any] | None:
    shown = [curve for curve in scope.curves if sum(amount is not None for amount in curve.waiting) > 1]
    if not shown:
        return None
    with_gpus = [curve for curve in shown if _share(curve, scope.gpus, [curve]) is not None]
    used = [(curve.label, percent(_share(curve, scope.gpus, with_gpus) or 0.0)) for curve in with_gpus]
    waiting = [(curve.label, f"{_mean_waiting(curve, shown):.1f}") for curve in shown]
    return {
        "name": scope.name,
        "axis": scope.axis,
        "real": scope.real,
        "note": scope.note,
        "times_finding": _sentence(
            "Average completion time", [(label, duration(seconds)) for label, seconds in scope.times]
        ),
        "use_finding": _sentence("GPUs in use on average", used),
        "waiting_finding": _sentence("Jobs waiting on average", waiting),
        "seconds": [round(moment, 1) for moment in scope.seconds],
        "gpus": _rounded(scope.gpus),
        "curves": [
            {
                "label": curve.label,
                "of_own": curve.of_own,
                "used": _rounded(curve.used),
                "waiting": _rounded(curve.waiting),
            }
            for curve in shown
        ],
    }


def _rounded(amounts: Sequence[Amount]) -> list[Amount]:
    return [None if amount is None else round(amount, 2) for amount in amounts]


def _share(curve: SchedulerLoad, gpus: Sequence[float], among: Sequence[SchedulerLoad]) -> float | None:
    """Share of the GPUs in use, over the moments at which all these curves are known; None without any."""
    used, there = 0.0, 0.0
    for index, (amount, have) in enumerate(zip(curve.used, gpus, strict=True)):
        if amount is not None and have > 0.0 and all(other.used[index] is not None for other in among):
            used += amount
            there += have
    return used / there if there else None


def _mean_waiting(curve: SchedulerLoad, among: Sequence[SchedulerLoad]) -> float:
    """Mean over the moments at which all these curves are known; without any, at which this one is."""
    every = [
        amount
        for index, amount in enumerate(curve.waiting)
        if amount is not None and all(other.waiting[index] is not None for other in among)
    ]
    every = every or [amount for amount in curve.waiting if amount is not None]
    return sum(every) / len(every)


def _sentence(what: str, figures: Sequence[tuple[str, str]]) -> str:
    said = [f"{figure} ({label})" if len(figures) > 1 else figure for label, figure in reversed(figures)]
    return f"{what}: {listed(said, 9)}." if said else ""


@dataclass(frozen=True, slots=True)
class Series:
    """One curve as it was reported, on the clock of its cluster; with one step or more."""

    reported: fleet_pb2.LoadCurve

    @property
    def end(self) -> float:
        """End of its last step."""
        return self.reported.begin_seconds + len(self.reported.gpus) * self.reported.step_seconds

    @property
    def nearly_end(self) -> float:
        """End of what is shown of a run: its last job may run alone for days."""
        return min(self.reported.nearly_done_seconds or self.end, self.end)

    def at(self, seconds: float) -> tuple[Amount, Amount, float] | None:
        """GPUs in use, jobs that wait, GPUs; None where nothing is known."""
        steps = (seconds - self.reported.begin_seconds) / self.reported.step_seconds
        if steps < 0.0 or (steps >= len(self.reported.gpus) and not self.reported.ended):
            return None
        if steps >= len(self.reported.gpus):
            return 0.0, 0.0, max(self.reported.gpus[-1], 0.0)
        index = math.floor(steps)
        used, waiting, gpus = (
            values[index] for values in (self.reported.gpus_used, self.reported.jobs_waiting, self.reported.gpus)
        )
        return None if waiting < 0.0 else (None if used < 0.0 else used, waiting, max(gpus, 0.0))
