"""Assignments of a rollout as agents get them, with blocks as long as the cluster's jobs ask for."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

from global_learner.rollout.events import Assign
from global_learner.rollout.state import VersionRole
from policy_net.exchange.rollout_assignment import AssignmentRole, RolloutAssignment

Jcts = Mapping[str, float]
"""Mean job completion times of clusters that told one, in seconds."""
USUAL_JCT_SECONDS = 2 * 3600.0
"""Of a cluster that has not said yet how long its jobs take: blocks of four hours."""
_SEED_BITS = 48
"""Exact in every language's floating point, too."""
_ROLES = {VersionRole.SHADOW: AssignmentRole.SHADOW, VersionRole.ALTERNATING: AssignmentRole.ALTERNATING}

# Switchback blocks: a cluster alternates between incumbent and candidate, in pairs whose order is a coin's.
#
# Within a pair the same machines, users and weather serve both versions, so the difference of its two blocks says more
# than any comparison of clusters. The order is drawn anew for each pair: whatever the load does, it does to both with
# equal probability, and so the difference has the right mean without any model of the load. What a version leaves
# behind, it leaves to the next block: a queue, mostly, which is gone after about the time that jobs take. The first
# part of every block is therefore not counted (washout), and blocks are as long as the cluster's own jobs make them.
# Source: Bojinov, Simchi-Levi and Zhao, "Design and analysis of switchback experiments", Management Science 69 (2023).

BLOCK_JCTS = 2.0
"""A block lasts about two mean job completion times, within bounds: an effect on the queue has mostly built up then."""
SHORTEST_BLOCK_SECONDS = 2 * 3600.0
"""Some six ticks of a cluster in which nothing happens."""
LONGEST_BLOCK_SECONDS = 12 * 3600.0
"""A pair then takes a day; with longer ones a stage of two weeks has too few to say anything. What such a block leaves
behind in a slow cluster is priced by its twin."""
WASHOUT_SHARE = 1 / 3
"""Of a block, from its begin, that is not counted."""


def block_seconds_of(mean_jct_seconds: float) -> float:
    """Length of the blocks that suit a cluster whose jobs take so long on average.

    Raises:
        ValueError: no finite time above 0.
    """
    if not (math.isfinite(mean_jct_seconds) and mean_jct_seconds > 0.0):
        raise ValueError(f"mean_jct_seconds is {mean_jct_seconds}: use a finite number above 0")
    hours = math.ceil(BLOCK_JCTS * mean_jct_seconds / 3600.0)
    return min(max(hours * 3600.0, SHORTEST_BLOCK_SECONDS), LONGEST_BLOCK_SECONDS)


def seed_of(number: int, started_unix_seconds: float) -> int:
    """The seed of a rollout's coins: another one in every rollout, and known to nobody before it begins."""
    drawn = hashlib.sha256(f"rollout-seed\0{number}\0{started_unix_seconds!r}".encode()).digest()
    return int.from_bytes(drawn[: _SEED_BITS // 8])


def rollout_assignment_of(
    reported: Assign, rollout: int, seed: int, jct_seconds: float | None
) -> RolloutAssignment | None:
    """What a cluster is asked for; None: to act on its version, and nothing else.

    Args:
        jct_seconds: its mean job completion time; None, or nothing above 0, where none is known.
    """
    role = _ROLES.get(reported.role)
    if role is None or reported.challenger is None or reported.challenger == reported.acting:
        return None
    known = jct_seconds is not None and math.isfinite(jct_seconds) and jct_seconds > 0.0
    block_seconds = block_seconds_of(jct_seconds if known and jct_seconds is not None else USUAL_JCT_SECONDS)
    return RolloutAssignment(
        rollout, role, reported.challenger, seed, block_seconds, washout_seconds=WASHOUT_SHARE * block_seconds
    )
