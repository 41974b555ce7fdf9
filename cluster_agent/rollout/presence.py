"""Jobs in the system between two decisions: who came, who left and when, and who has gone without training too long.

Arrivals are known to the moment, from what jobs say of their submission; ends from what they reported. A job that was
gone without a report (withdrawn, or it ended while the agent was away) left at the decision that missed it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from policy_net.domain import ClusterState, Job, Progress

STARVING_DURATIONS = 10.0
STARVING_SECONDS = 3600.0
"""A job starves if it goes without training for longer than ten times its duration, and for longer than an hour: as the
simulator's reports have it."""


@dataclass(frozen=True, slots=True)
class DecisionInterval:
    """The time between two decisions: when jobs came and left, by the cluster's clock, and how many began to starve.

    `arrivals` are the submissions that the second decision was the first to see, by the same clock.
    """

    begin: float
    end: float
    stays: tuple[tuple[float, float], ...]
    arrivals: tuple[float, ...]
    starved: int = 0

    def job_seconds(self, begin: float, end: float) -> float:
        """Jobs times the seconds that they were in the system between two times."""
        return sum(max(0.0, min(left, end) - max(came, begin)) for came, left in self.stays)

    def jobs_at(self, time: float) -> int:
        """Jobs in the system at a time within it."""
        return sum(came <= time < left for came, left in self.stays)


@dataclass
class Presence:
    """Follows the jobs of one cluster from decision to decision; `now` is the latest one's time.

    `trained` says of every job in the system when it trained last, or came; jobs that are `starving` were counted.
    """

    now: float | None = None
    trained: dict[str, float] = field(default_factory=dict)
    starving: set[str] = field(default_factory=set)
    _ends: dict[str, float] = field(default_factory=dict)

    def carried_out(self, decided_seconds: float, progress: Sequence[Progress]) -> None:
        """Take in what jobs did after the decision at a time."""
        for entry in progress:
            stopped = decided_seconds + entry.paused_seconds + entry.seconds
            if entry.finished:
                self._ends[entry.job_id] = stopped
            if entry.seconds > 0.0 and entry.job_id in self.trained:
                self.trained[entry.job_id] = stopped
                self.starving.discard(entry.job_id)

    def moved_to(self, state: ClusterState, alone_seconds: Callable[[Job], float]) -> DecisionInterval | None:
        """The interval that ends with a state; None before there is one, and where the clock went back.

        `alone_seconds` is how long a job is believed to take at the size that it asked for.
        """
        begin, end = self.now, state.time_seconds
        before, ends = self.trained, self._ends
        present = {job.job_id: job for job in state.jobs}
        new = [job for job in state.jobs if job.job_id not in before]
        self.now, self._ends = end, {}
        if begin is None or end < begin:
            self.trained = dict.fromkeys(present, end)
            self.starving = set()
            return None
        stays = [(begin, end if job_id in present else min(ends.get(job_id, end), end)) for job_id in before]
        stays += [(min(max(job.submit_time_seconds, begin), end), end) for job in new]
        self.trained = {
            job_id: before.get(job_id, min(job.submit_time_seconds, end)) for job_id, job in present.items()
        }
        self.starving &= present.keys()
        hungry = {
            job.job_id
            for job in state.jobs
            if end - self.trained[job.job_id] > STARVING_SECONDS
            and end - self.trained[job.job_id] > STARVING_DURATIONS * alone_seconds(job)
        }
        starved = len(hungry - self.starving)
        self.starving |= hungry
        return DecisionInterval(begin, end, tuple(stays), tuple(came for came, _ in stays[len(before) :]), starved)

    def to_json(self) -> dict[str, Any]:
        """For a file; what was reported since the latest decision is not in it."""
        return {"now": self.now, "trained": self.trained, "starving": sorted(self.starving)}

    @classmethod
    def from_json(cls, content: Any) -> Presence:
        """The inverse.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        now = content["now"]
        trained = {str(job_id): float(at) for job_id, at in dict(content["trained"]).items()}
        return cls(None if now is None else float(now), trained, {str(name) for name in content["starving"]})
