"""Alternation of two versions in one cluster: what the block that lasts comes to, its pair, and whole pairs.

Blocks are reported in pairs. A block of which its version did not act from the begin on says nothing, and neither does
the other half of its pair.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cluster_agent.rollout.presence import DecisionInterval
from policy_net.domain import ClusterState
from policy_net.exchange.rollout_assignment import RolloutAssignment, candidate_acts

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

    def on_held(self, next_block: int) -> None:
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
