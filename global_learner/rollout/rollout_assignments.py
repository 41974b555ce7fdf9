"""Duties of clusters: what commands of the state machine come to for an agent, blocks as long as its jobs ask for."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

from global_learner.rollout.events import Assign
from global_learner.rollout.state import VersionRole
from global_learner.rollout.verdicts.switchback import schedule_of
from policy_net.exchange.rollout_assignment import AssignmentRole, RolloutAssignment

Jcts = Mapping[str, float]
"""Mean job completion times of clusters that told one, in seconds."""
USUAL_JCT_SECONDS = 2 * 3600.0
"""Of a cluster that has not said yet how long its jobs take: blocks of four hours."""
_SEED_BITS = 48
"""Exact in every language's floating point, too."""
_ROLES = {VersionRole.SHADOW: AssignmentRole.SHADOW, VersionRole.ALTERNATING: AssignmentRole.ALTERNATING}


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
    if role is None or reported.beside is None or reported.beside == reported.acting:
        return None
    known = jct_seconds is not None and math.isfinite(jct_seconds) and jct_seconds > 0.0
    schedule = schedule_of(jct_seconds if known and jct_seconds is not None else USUAL_JCT_SECONDS, 0.0)
    return RolloutAssignment(rollout, role, reported.beside, seed, schedule.block_seconds, schedule.washout_seconds)
