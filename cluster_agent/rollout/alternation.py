"""Alternation of two versions in one cluster: the block that lasts, the pair that it belongs to, and whole pairs.

Blocks are reported in pairs. A block of which its version did not act from the begin on says nothing, and neither does
the other half of its pair.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster_agent.rollout.block_tally import BlockTally, FinishedBlock
from cluster_agent.rollout.presence import DecisionInterval
from policy_net.domain import ClusterState
from policy_net.exchange.rollout_assignment import RolloutAssignment, candidate_acts

_FAR = 2
"""Blocks in which nothing was decided; more of them are passed over at once."""


# Blocks of a cluster that alternates: which one a decision falls into, and which version acts in it.
#
# Both follow from four things alone: the coin's seed, the cluster's name, where the present run of blocks began, and
# the decision's time. Nothing depends on which decisions came before. A run of blocks that is interrupted (the agent
# was away, a version could not act, the clock went back) ends there; the next run begins behind it, at an even number,
# so that no pair has a half from before.


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
