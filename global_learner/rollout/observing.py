"""Observation of the fleet for a rollout: events that follow from heartbeats, and that it does not know yet.

No I/O and no clock: silences are handed in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from global_learner.rollout.events import Away, EventContent, Joined, Left, Pin, VersionSeen
from global_learner.rollout.state import RolloutMember, RolloutPhase, RolloutState, VersionRole
from policy_net.exchange.rollout_assignment import AssignmentRole

MOST_EVENTS = 256
"""At once; the others follow at the next poll."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A registered cluster as the learner knows it now.

    Attributes:
        assigned: version that it is to act on.
        held: by an operator's order.
        silent_seconds: since its last heartbeat, or since the learner began.
        acting: version that it reports; None: nothing since its latest assignment.
        rollout, role: of the assignment that it reports to carry out; 0: none.
    """

    assigned: int
    held: bool = False
    silent_seconds: float = 0.0
    acting: int | None = None
    rollout: int = 0
    role: str = ""


def observed(
    state: RolloutState, fleet: Mapping[str, Heard], gone: Collection[str], away_seconds: float
) -> list[EventContent]:
    """Events that a rollout has not taken yet; `gone` are clusters that were turned out."""
    if state.phase.over:
        return []
    contents: list[EventContent] = []
    known = {member.cluster: member for member in state.members}
    for cluster, heard in sorted(fleet.items()):
        if len(contents) >= MOST_EVENTS:
            break
        member = known.get(cluster)
        if cluster in gone:
            contents += [Left(cluster=cluster)] if member is not None else []
        elif member is None:
            # Who comes in the middle of a rollback has nothing to go back from.
            if state.phase is not RolloutPhase.ROLLING_BACK:
                contents.append(Joined(cluster=cluster, incumbent=heard.assigned))
                contents += [Pin(cluster=cluster)] if heard.held else []
                contents += [Away(cluster=cluster)] if heard.silent_seconds > away_seconds else []
        elif heard.silent_seconds > away_seconds:
            contents += [] if member.away else [Away(cluster=cluster)]
        else:
            contents += _seen(state, member, heard)
    return contents


def _seen(state: RolloutState, member: RolloutMember, heard: Heard) -> list[EventContent]:
    if heard.acting is None:
        return []
    acting = heard.acting or member.incumbent  # on none of the fleet's, so not on the candidate
    if heard.rollout == state.number and heard.role == AssignmentRole.ALTERNATING:
        acting = state.candidate  # it may, at any time: one event, and not one a block
    if member.role is VersionRole.PINNED and not member.away:
        return []
    return [VersionSeen(cluster=member.cluster, acting=acting)] if member.away or acting != member.acting else []
