"""Tally of one block while it lasts: what a block comes to, added up from decision to decision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cluster_agent.rollout.presence import DecisionInterval

_STEPS_PER_DOUBLING = 14.0
_SHORTEST_SECONDS = 1e-6


@dataclass
class Latencies:
    """Decision times as counts on a fine scale: a percentile is right to 5%, however many decisions there are."""

    counts: dict[int, int] = field(default_factory=dict)

    def add(self, seconds: float) -> None:
        """Count one."""
        step = round(_STEPS_PER_DOUBLING * math.log2(max(seconds, _SHORTEST_SECONDS)))
        self.counts[step] = self.counts.get(step, 0) + 1

    @property
    def p99_seconds(self) -> float:
        """What all but one in a hundred stay below; 0 without any."""
        left = math.ceil(0.99 * sum(self.counts.values()))
        for step in sorted(self.counts):
            left -= self.counts[step]
            if left <= 0:
                return float(2.0 ** (step / _STEPS_PER_DOUBLING))
        return 0.0

    def to_json(self) -> list[list[int]]:
        """For a file."""
        return [[step, count] for step, count in sorted(self.counts.items())]

    @classmethod
    def from_json(cls, content: Any) -> Latencies:
        """The inverse.

        Raises:
            TypeError, ValueError: it is something else.
        """
        return cls({int(step): int(count) for step, count in content})


@dataclass(frozen=True, slots=True)
class FinishedBlock:
    """A whole block as it is reported; the words are those of `SwitchbackBlock` in fleet.proto.

    Attributes:
        whole_jobs: in the system on average over the whole block, the washout too.
        twin: priced, incumbent, candidate; None without a twin.
    """

    number: int
    candidate: bool
    jobs: float
    usual_jobs: float
    jobs_at_start: float
    arrivals: float
    guard_share: float
    starved_jobs: int
    latency_p99_seconds: float
    decisions: int
    begin_seconds: float
    end_seconds: float
    whole_jobs: float
    twin: tuple[float, float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> FinishedBlock:
        """The inverse.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        twin = content["twin"]
        figures = None if twin is None else tuple(float(value) for value in twin)
        if figures is not None and len(figures) != 3:
            raise ValueError("a twin says three figures")
        return cls(**{**content, "twin": figures})


@dataclass
class BlockTally:
    """What a block has come to so far, from the end of its washout (`counted_from`) on.

    `is_whole`: its version acted from its begin on, so that it may be reported.
    """

    number: int
    candidate: bool
    begin: float
    counted_from: float
    end: float
    jobs_at_start: int
    is_whole: bool = True
    counted_job_seconds: float = 0.0
    whole_job_seconds: float = 0.0
    arrivals: int = 0
    starved: int = 0
    decisions: int = 0
    changed: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    def add(self, interval: DecisionInterval) -> None:
        """Take in the part of an interval that lies in this block."""
        self.counted_job_seconds += interval.job_seconds(self.counted_from, self.end)
        self.whole_job_seconds += interval.job_seconds(self.begin, self.end)
        self.arrivals += sum(self.begin <= at < self.end for at in interval.arrivals)
        if interval.end < self.end:
            self.starved += interval.starved

    def decided(self, seconds: float, *, changed: bool) -> None:
        """Count a decision, and whether the guard changed it."""
        self.decisions += 1
        self.changed += changed
        self.latencies.add(seconds)

    def finished(self, usual_jobs: float) -> FinishedBlock | None:
        """What it came to; None where that says nothing.

        In a block without a decision the version of the block before went on acting, unless there was no job all the
        while: then there was nothing to act on, under either version.
        """
        idle = self.whole_job_seconds == 0.0 and self.arrivals == 0
        if not self.is_whole or (self.decisions == 0 and not idle):
            return None
        return FinishedBlock(
            self.number,
            self.candidate,
            self.counted_job_seconds / (self.end - self.counted_from),
            usual_jobs,
            float(self.jobs_at_start),
            float(self.arrivals),
            self.changed / max(self.decisions, 1),
            self.starved,
            self.latencies.p99_seconds,
            self.decisions,
            self.begin,
            self.end,
            self.whole_job_seconds / (self.end - self.begin),
        )

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return {**asdict(self), "latencies": self.latencies.to_json()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> BlockTally:
        """The inverse.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        return cls(**{**content, "latencies": Latencies.from_json(content["latencies"])})
