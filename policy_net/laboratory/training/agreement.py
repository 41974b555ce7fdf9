"""Agreement of two schedulers: the share of tasks that they have in common, and the decisions on which it is judged.

Whole runs of a log's decisions are held out, spread over the log: neighbouring decisions are nearly alike, so one that
stands between two that were learned from would show nothing; and the end of a log alone may be its quietest part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from policy_net.domain import Allocation

MEASURES: Mapping[str, str] = MappingProxyType(
    {
        "task_overlap": "tasks in common",
        "same_allocation": "jobs that are given exactly the same",
        "running_alike": "jobs that run under both, or wait under both",
    }
)
"""What `Agreement.to_json` says, and what it means."""

RUNS = 40
EVERY = 5
"""Every fifth of forty runs is held out."""


def overlap(ours: Sequence[Allocation], theirs: Sequence[Allocation]) -> float:
    """Tasks that both give to the same job in the same role, over those that either gives; 1 if both give nothing."""
    both, either = _tasks(ours, theirs)
    return both / either if either else 1.0


def _tasks(ours: Sequence[Allocation], theirs: Sequence[Allocation]) -> tuple[int, int]:
    both = either = 0
    for mine, other in zip(ours, theirs, strict=True):
        both += min(mine.workers, other.workers) + min(mine.ps, other.ps)
        either += max(mine.workers, other.workers) + max(mine.ps, other.ps)
    return both, either


@dataclass
class Agreement:
    """The agreement over some decisions, counted over all of their jobs and tasks.

    Attributes:
        both, either: tasks that both gave to the same job in the same role, and that either gave.
        same: jobs that were given exactly the same.
        alike: jobs that run under both, or wait under both.
    """

    decisions: int = 0
    jobs: int = 0
    both: int = 0
    either: int = 0
    same: int = 0
    alike: int = 0

    def add(self, ours: Sequence[Allocation], theirs: Sequence[Allocation]) -> None:
        """One decision: what every job is given by either."""
        both, either = _tasks(ours, theirs)
        self.decisions += 1
        self.jobs += len(ours)
        self.both += both
        self.either += either
        self.same += sum(mine == other for mine, other in zip(ours, theirs, strict=True))
        self.alike += sum((mine.tasks > 0) == (other.tasks > 0) for mine, other in zip(ours, theirs, strict=True))

    @property
    def task_overlap(self) -> float:
        """Share of tasks in common, 0 to 1."""
        return self.both / self.either if self.either else 1.0

    def to_json(self) -> dict[str, float]:
        """Shares between 0 and 1."""
        jobs = max(self.jobs, 1)
        return {
            "task_overlap": round(self.task_overlap, 4),
            "same_allocation": round(self.same / jobs, 4),
            "running_alike": round(self.alike / jobs, 4),
        }


@dataclass(frozen=True, slots=True)
class Split:
    """How a log of so many decisions is divided.

    Attributes:
        most: of the decisions to learn from, at most about so many are taken, evenly spread.
    """

    decisions: int
    most: int

    def is_held_out(self, position: int) -> bool:
        """Whether the decision at this position judges."""
        return position // max(self.decisions // RUNS, 1) % EVERY == EVERY // 2

    def is_learned(self, position: int) -> bool:
        """Whether the decision at this position is learned from."""
        return not self.is_held_out(position) and position % max(-(-self.decisions // self.most), 1) == 0
