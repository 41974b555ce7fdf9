"""Results of an experiment: claims put to the test, rows for a table, and files that hold them.

A claim is tested on the judging workloads: each gives the change from one line to the other, over the mean of the
training seeds, and the interval is over workloads (Student's, 95%). It says nothing of other training seeds; how far
those lie apart stands beside every figure as a standard deviation.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from policy_net.laboratory.reproduction.experiment import Claim, Experiment, Measure, Point
from policy_net.laboratory.tuning.comparing import JctChange, change_between

COLUMNS = ("line", "at", "avg_jct_slots", "sd_over_seeds", "makespan_slots", "gpu_utilization", "seeds", "failed")
SAME = 0.01
"""A change of so much is none, where the paper says that there is none."""


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """A claim and what came of it.

    Attributes:
        change: None where a line has no figure, or the claim is of a figure itself.
        value: of a claim that is of a figure itself.
        failure: why there is nothing.
        seeds: training seeds that have a figure, of how many; fewer than all flatter the line.
    """

    claim: Claim
    change: JctChange | None = None
    value: float | None = None
    failure: str | None = None
    seeds: tuple[int, int] = (1, 1)

    @property
    def verdict(self) -> str:
        """How ours stands to the paper's, in a few words."""
        if self.failure is not None:
            return "no figure"
        if self.change is None:
            return "a figure of its own"
        change, paper = self.change, self.claim.paper
        low, high = (change.mean if end is None else end for end in (change.low, change.high))
        shown = low > 0.0 or high < 0.0
        if not shown:
            return "no difference shown"
        if paper == 0.0:
            return "other" if abs(change.mean) > SAME else "the same"
        direction = self.claim.direction if paper is None else paper
        if not direction:
            return "a difference"
        return "same direction" if (change.mean > 0.0) == (direction > 0.0) else "opposite direction"

    @property
    def ours(self) -> str:
        """Our figure in words."""
        if self.failure is not None:
            return f"none: {self.failure}"
        found, asked = self.seeds
        only = f" ({found} of {asked} seeds)" if found < asked else ""
        return (str(self.change) if self.change is not None else f"{self.value:.2f}") + only

    @property
    def papers(self) -> str:
        """The paper's figure in words."""
        paper = self.claim.paper
        if paper is None:
            return self.claim.said
        return f"{paper:.2f}" if self.claim.against is None else "the same" if paper == 0.0 else f"{paper:+.1%}"


def findings(experiment: Experiment, points: Sequence[Point]) -> list[ClaimFinding]:
    """Every claim of an experiment."""
    return [_test(claim, points) for claim in experiment.claims]


def _test(claim: Claim, points: Sequence[Point]) -> ClaimFinding:
    of = _find(points, claim.of)
    against = of if claim.against is None else _find(points, claim.against)
    for point in (of, against):
        if not any(point.by_seed[claim.measure]):
            return ClaimFinding(claim, failure=point.failures[0] if point.failures else "nothing to measure")
    seeds = min((_seeds_of(point, claim.measure) for point in (of, against)), key=lambda pair: pair[0] - pair[1])
    if claim.against is None:
        values = [value for row in of.by_seed[claim.measure] for value in row]
        return ClaimFinding(claim, value=float(np.mean(values)), seeds=seeds)
    change = change_between(_logs(of, claim.measure), _logs(against, claim.measure))
    return ClaimFinding(claim, change, seeds=seeds)


def _seeds_of(point: Point, measure: Measure) -> tuple[int, int]:
    """How many training seeds have a figure, and how many there are."""
    found = sum(1 for row in point.by_seed[measure] if row)
    return found, found + len(point.failures)


def _find(points: Sequence[Point], which: tuple[str, float | None]) -> Point:
    return next(point for point in points if (point.label, point.at) == which)


def _logs(point: Point, measure: Measure) -> list[float]:
    """By workload, the mean over the training seeds of the logarithm."""
    logs: list[float] = np.log(point.by_seed[measure]).mean(axis=0).tolist()
    return logs


def best_of(experiment: Experiment, points: Sequence[Point]) -> tuple[str, str] | None:
    """The best line by the paper, and by ours; None where the paper names none, or we have none."""
    if experiment.best is None:
        return None
    candidates, papers = experiment.best
    found = [(mean_and_spread(_find(points, which))[0], which) for which in candidates]
    measured = [(mean, which) for mean, which in found if mean is not None]
    if not measured:
        return None
    return _named(papers), _named(min(measured, key=lambda entry: entry[0])[1])


def _named(which: tuple[str, float | None]) -> str:
    label, at = which
    return label if at is None else f"{at:g}"


def mean_and_spread(point: Point) -> tuple[float | None, float | None]:
    """Mean of the average JCTs in slots, and the standard deviation over training seeds, where there are several."""
    by_seed = [float(np.mean(row)) for row in point.by_seed[Measure.AVG_JCT]]
    if not by_seed:
        return None, None
    return float(np.mean(by_seed)), float(np.std(by_seed, ddof=1)) if len(by_seed) > 1 else None


def row_of(point: Point) -> dict[str, Any]:
    """A line's figures, for csv and JSON."""
    mean, spread = mean_and_spread(point)
    others = {
        measure.value: _rounded(float(np.mean(point.by_seed[measure]))) if point.by_seed[measure] else None
        for measure in (Measure.MAKESPAN, Measure.GPU_UTILIZATION)
    }
    return {
        "line": point.label,
        "at": point.at,
        "avg_jct_slots": _rounded(mean),
        "sd_over_seeds": _rounded(spread),
        **others,
        "seeds": len(point.by_seed[Measure.AVG_JCT]),
        "failed": "; ".join(sorted(set(point.failures))),
    }


def csv_of(points: Sequence[Point]) -> str:
    """The figure's table; of a figure of steps, its steps."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    timeline = next((point.timeline for point in points if point.timeline), ())
    if timeline:
        writer.writerow(("slot", "workers", "ps"))
        writer.writerows(timeline)
        return text.getvalue()
    writer.writerow(COLUMNS)
    for point in points:
        row = row_of(point)
        writer.writerow("" if row[name] is None else row[name] for name in COLUMNS)
    return text.getvalue()


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
