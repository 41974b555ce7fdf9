"""Observation of the fleet, as a rollout is told of it: who joined, left, is away, and which version each one acts on.

From what heartbeats say and what the rollout knows follow the events that it has not been told yet; where nothing
changed there are none. No I/O and no clock: silences are handed in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from global_learner.rollout.events import Away, EventContent, Joined, Left, Pin, VersionSeen
from global_learner.rollout.state import RolloutMember, RolloutPhase, RolloutState, VersionRole
from policy_net.exchange.rollout_assignment import AssignmentRole

MOST_EVENTS = 256
"""At once; the others follow when the fleet is looked at next."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A registered cluster as the learner knows it now.

    Attributes:
        assigned: the version that it was told to act on.
        held: an operator told it so.
        silent_seconds: since it was heard, or since the learner began.
        acting: the version that it says it acts on; None: it has said nothing since it was told something else.
        rollout: whose assignment it says that it does; 0: none.
        role: as which.
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
    """The events that a rollout is still to be told.

    Args:
        gone: clusters that were turned out.
    """
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
