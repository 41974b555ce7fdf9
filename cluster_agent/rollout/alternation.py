"""Alternation of two versions in one cluster: who was in the system between two decisions, and what its blocks come to.

Arrivals are known to the moment, from what jobs say of their submission; ends from what they reported. A job that was
gone without a report (withdrawn, or it ended while the agent was away) left at the decision that missed it.

Blocks are reported in pairs. A block of which its version did not act from the begin on says nothing, and neither does
the other half of its pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from policy_net.domain import ClusterState, Job, Progress
from policy_net.exchange.rollout_assignment import RolloutAssignment, candidate_acts

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

    `whole_jobs` counts jobs in the washout too; `twin` has priced, incumbent and candidate.
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


_FAR = 2
"""Blocks in which nothing was decided; more of them are passed over at once."""


# Block and acting version of a decision follow from the coin's seed, the cluster's name, the begin of the present run
# of blocks, and the decision's time alone. A run that is interrupted (the agent was away, a version could not act, the
# clock went back) ends; the next begins at an even number, so that no pair has a half from before.


@dataclass(frozen=True, slots=True)
class UninterruptedBlocks:
    """Blocks without an interruption; the first has an even number, and its begin is by the cluster's clock."""

    first: int
    begin_seconds: float

    def block_at(self, now: float, block_seconds: float) -> int:
        """The number of the block at a time; of a time before the run, its first."""
        return self.first + max(0, math.floor((now - self.begin_seconds) / block_seconds))

    def begin_of(self, block: int, block_seconds: float) -> float:
        """When a block of this run begins, by the cluster's clock; the one before ends then."""
        return self.begin_seconds + (block - self.first) * block_seconds


def run_behind(number: int, now: float) -> UninterruptedBlocks:
    """A run that begins now, with the first pair that has no block below `number`."""
    return UninterruptedBlocks(number + number % 2, now)


def candidate_decides(
    rollout_assignment: RolloutAssignment, cluster: str, run: UninterruptedBlocks, now: float
) -> bool:
    """Whether the candidate makes the decision at a time."""
    return candidate_acts(rollout_assignment.seed, cluster, run.block_at(now, rollout_assignment.block_seconds))


@dataclass
class Alternation:
    """One cluster's blocks in one rollout, of which none below `next_number` may begin any more.

    `half` is the first block of the present pair, once it is whole.
    """

    next_number: int = 0
    run: UninterruptedBlocks | None = None
    tally: BlockTally | None = None
    half: FinishedBlock | None = None

    def interrupt(self) -> None:
        """End the run of blocks; what was under way, and its pair, is lost."""
        if self.tally is not None:
            self.next_number = max(self.next_number, self.tally.number - self.tally.number % 2 + 2)
        self.run, self.tally, self.half = None, None, None

    def on_taken(self, next_block: int) -> None:
        """The learner holds all blocks below a number: none of them may come again."""
        if self.tally is not None and self.tally.number - self.tally.number % 2 < next_block:
            self.interrupt()
        self.next_number = max(self.next_number, next_block)

    def advance(
        self,
        rollout_assignment: RolloutAssignment,
        cluster: str,
        state: ClusterState,
        interval: DecisionInterval | None,
        usual_jobs: float,
    ) -> list[FinishedBlock]:
        """Go on to a decision of the same assignment; the blocks of a pair that is whole now.

        An unknown interval since the decision before interrupts.
        """
        now = state.time_seconds
        if interval is None:
            self.interrupt()
        if self.run is None or self.tally is None or interval is None:
            self.run = run_behind(self.next_number, now)
            self.tally = self._opened(rollout_assignment, cluster, self.run.first, len(state.jobs))
            return []
        self.tally.add(interval)
        number = self.run.block_at(now, rollout_assignment.block_seconds)
        whole: list[FinishedBlock] = []
        while self.tally.number < number:
            whole += self._closed(usual_jobs)
            following = self.tally.number + 1
            if number - following > _FAR:
                following, self.half = number - 1, None
            begin = self.run.begin_of(following, rollout_assignment.block_seconds)
            # An interval knows who left at its end, and not who came or stayed: that the state does.
            jobs = interval.jobs_at(begin) if begin < now else len(state.jobs)
            self.tally = self._opened(rollout_assignment, cluster, following, jobs)
            self.tally.add(interval)
            # Until its first decision the other version's last one held: no matter where there was no job to hold it.
            late = now - begin > max(rollout_assignment.washout_seconds, state.slot_seconds)
            self.tally.is_whole = not (late and interval.job_seconds(begin, now) > 0.0)
        return whole

    def candidate_acts(self, rollout_assignment: RolloutAssignment, cluster: str, now: float) -> bool:
        """Whose turn it is at a decision to which this was advanced."""
        return self.run is not None and candidate_decides(rollout_assignment, cluster, self.run, now)

    def _closed(self, usual_jobs: float) -> list[FinishedBlock]:
        assert self.tally is not None  # noqa: S101  (the caller looked)
        done = self.tally.finished(usual_jobs)
        if self.tally.number % 2 == 0:
            self.half = done
            return []
        first, self.half = self.half, None
        return [] if first is None or done is None else [first, done]

    def _opened(self, rollout_assignment: RolloutAssignment, cluster: str, number: int, jobs: int) -> BlockTally:
        assert self.run is not None  # noqa: S101  (every caller has one)
        begin = self.run.begin_of(number, rollout_assignment.block_seconds)
        end = self.run.begin_of(number + 1, rollout_assignment.block_seconds)
        acts = candidate_acts(rollout_assignment.seed, cluster, number)
        return BlockTally(number, acts, begin, begin + rollout_assignment.washout_seconds, end, jobs)

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return {
            "next_number": self.next_number,
            "run": None if self.run is None else [self.run.first, self.run.begin_seconds],
            "tally": None if self.tally is None else self.tally.to_json(),
            "half": None if self.half is None else self.half.to_json(),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Alternation:
        """The inverse.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        run, tally, half = content["run"], content["tally"], content["half"]
        return cls(
            int(content["next_number"]),
            None if run is None else UninterruptedBlocks(int(run[0]), float(run[1])),
            None if tally is None else BlockTally.from_json(tally),
            None if half is None else FinishedBlock.from_json(half),
        )
