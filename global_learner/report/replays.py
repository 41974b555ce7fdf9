"""What replays after the fleet's end add to a report: every policy on the same jobs, versions on unseen ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """What one version is worth.

    Attributes:
        by: cluster to average JCT over the reference's on the same jobs; 1 is as good.
    """

    version: int
    head_step: int
    by: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Replays:
    """A controlled comparison, which is worth more than what was seen while policies changed and explored.

    Attributes:
        jct_seconds: cluster to policy to average JCT on the cluster's own jobs.
        labels: policy to what it is called, in the order of the chart.
        baseline, proposed: the two of them that the headline compares.
        curve: versions on jobs that nobody trained on, oldest first.
        jobs: lives of jobs in these replays, as in `content.py`.
    """

    jct_seconds: Mapping[str, Mapping[str, float]]
    labels: Mapping[str, str]
    baseline: str
    proposed: str
    curve: Sequence[CurvePoint] = ()
    jobs: Sequence[Mapping[str, Any]] = ()
