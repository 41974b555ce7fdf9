"""Blocks of a cluster that alternates: which one a decision falls into, and which version acts in it.

Both follow from four things alone: the coin's seed, the cluster's name, where the present run of blocks began, and the
decision's time. Nothing depends on which decisions came before. A run of blocks that is interrupted (the agent was
away, a version could not act, the clock went back) ends there; the next run begins behind it, at an even number, so
that no pair has a half from before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from policy_net.exchange.rollout_assignment import RolloutAssignment, candidate_acts


@dataclass(frozen=True, slots=True)
class UninterruptedBlocks:
    """Blocks without an interruption.

    Attributes:
        first: number of the run's first block; even.
        begin_seconds: when that one began, by the cluster's clock.
    """

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


def candidate_decides(duty: RolloutAssignment, cluster: str, run: UninterruptedBlocks, now: float) -> bool:
    """Whether the candidate makes the decision at a time."""
    return candidate_acts(duty.seed, cluster, run.block_at(now, duty.block_seconds))
