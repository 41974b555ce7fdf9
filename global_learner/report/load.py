"""Section of load: how many GPUs were in use and how many jobs waited, over time, under one policy or several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foundation.figures import percent
from global_learner.report.words import listed


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """One policy's load, summed over the clusters, at moments evenly apart that all curves share.

    Attributes:
        label: what the policy is called.
        gpus: that there are; 0 where there is none, or it is not known.
        points: (seconds since the first moment, GPUs in use, jobs that wait).
    """

    label: str
    gpus: int
    points: Sequence[tuple[float, int, int]]

    @property
    def mean_use(self) -> float:
        """Share of the GPUs that was in use, on average over the moments; there must be some."""
        return sum(used for _, used, _ in self.points) / (self.gpus * len(self.points))

    @property
    def mean_waiting(self) -> float:
        """Jobs that waited, on average over the moments."""
        return sum(waiting for _, _, waiting in self.points) / len(self.points)


def load_section(curves: Sequence[LoadCurve], axis: str, note: str) -> dict[str, Any] | None:
    """Both charts; None where nothing was seen.

    Args:
        curves: the proposed policy's last, as in the chart of completion times.
        axis: what time it is, such as `simulated time`.
        note: where the figures are from, in whole sentences.
    """
    shown = [curve for curve in curves if len(curve.points) > 1]
    if not shown:
        return None
    used = [(curve.label, percent(curve.mean_use)) for curve in shown if curve.gpus]
    waiting = [(curve.label, f"{curve.mean_waiting:.1f}") for curve in shown]
    return {
        "axis": axis,
        "note": note,
        "use_finding": _sentence("GPUs in use on average", used),
        "waiting_finding": _sentence("Jobs waiting on average", waiting),
        "curves": [
            {"label": curve.label, "gpus": curve.gpus, "points": [list(point) for point in curve.points]}
            for curve in shown
        ],
    }


def _sentence(what: str, figures: Sequence[tuple[str, str]]) -> str:
    """The proposed policy's figure first."""
    said = [f"{figure} ({label})" if len(figures) > 1 else figure for label, figure in reversed(figures)]
    return f"{what}: {listed(said, 9)}." if said else ""
