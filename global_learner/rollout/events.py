"""Events of a rollout, numbered, the transition that follows from one, and those that follow from heartbeats.

An event and its transition are stored in one transaction. An event that comes again after a crash changes nothing. No
I/O and no clock: silences are handed in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from global_learner.errors import BadRequest
from global_learner.rollout.state import RolloutMember, RolloutPhase, RolloutState, VersionRole
from global_learner.rollout.verdicts.verdict import StageOutcome
from policy_net.exchange.rollout_assignment import AssignmentRole
from policy_net.settings import Section

MOST_REASON = 500
"""Characters of an operator's reason, which is free text."""


class StageVerdict(Section):
    """Verdict on a stage; on another stage than the present one it is late, and changes nothing."""

    kind: Literal["verdict"] = "verdict"
    stage: int
    outcome: StageOutcome
    held: tuple[str, ...] = ()
    reason: str = ""


class Promote(Section):
    """Operator's order: the next stage, whatever is known."""

    kind: Literal["promote"] = "promote"
    why: str = Field("", max_length=MOST_REASON)


class Pause(Section):
    """Operator's order: nothing new begins."""

    kind: Literal["pause"] = "pause"
    why: str = Field("", max_length=MOST_REASON)


class Resume(Section):
    """Operator's order: go on."""

    kind: Literal["resume"] = "resume"
    why: str = Field("", max_length=MOST_REASON)


class Abort(Section):
    """Operator's order: back to the incumbents."""

    kind: Literal["abort"] = "abort"
    why: str = Field("", max_length=MOST_REASON)


class VersionSeen(Section):
    """Report of a cluster's agent: the version that it acts on."""

    kind: Literal["seen"] = "seen"
    cluster: str
    acting: int


class Away(Section):
    """A cluster's agent is silent."""

    kind: Literal["away"] = "away"
    cluster: str


class Joined(Section):
    """A cluster was enrolled meanwhile; it takes part from the next stage on."""

    kind: Literal["joined"] = "joined"
    cluster: str
    incumbent: int


class Left(Section):
    """A cluster was turned out."""

    kind: Literal["left"] = "left"
    cluster: str


class Pin(Section):
    """Operator's order: a cluster goes back to its incumbent, and is left alone."""

    kind: Literal["pin"] = "pin"
    cluster: str
    why: str = Field("", max_length=MOST_REASON)


class VersionGone(Section):
    """A version is gone for good; clusters that would have gone back to it go back to `instead`."""

    kind: Literal["version-gone"] = "version-gone"
    version: int
    instead: int


class VersionDamaged(Section):
    """The file of a version that the rollout needs is damaged, and may be restored."""

    kind: Literal["version-damaged"] = "version-damaged"
    version: int


EventContent = Annotated[
    StageVerdict
    | Promote
    | Pause
    | Resume
    | Abort
    | VersionSeen
    | Away
    | Joined
    | Left
    | Pin
    | VersionGone
    | VersionDamaged,
    Field(discriminator="kind"),
]


class Event(Section):
    """One event: its number, time, actor and content."""

    number: int = Field(ge=1)
    """From 1 on, without a gap."""
    unix_seconds: float
    actor: str = "learner"
    what: EventContent


@dataclass(frozen=True, slots=True)
class Assign:
    """Command: the versions of a cluster.

    Attributes:
        acting: acts; of an alternating cluster, in the incumbent's blocks.
        challenger: acts in the candidate's blocks, or is only computed.
    """

    cluster: str
    role: VersionRole
    acting: int
    challenger: int | None = None


@dataclass(frozen=True, slots=True)
class RolloutAuditLine:
    """Line for the audit log."""

    actor: str
    action: str
    subject: str
    detail: str

    @property
    def words(self) -> str:
        """The line as people read it."""
        what = f"{self.action} {self.subject}"
        return f"{what}: {self.detail}" if self.detail else what


@dataclass(frozen=True, slots=True)
class Transition:
    """What follows from an event."""

    state: RolloutState
    commands: tuple[Assign, ...] = ()
    audit: tuple[RolloutAuditLine, ...] = ()


def check_reason(why: str, what: str = "reason") -> None:
    """Check that an operator's reason or note can stand in the audit log.

    Raises:
        BadRequest: it is too long, has several lines, or characters that cannot be printed.
    """
    if len(why) > MOST_REASON:
        raise BadRequest(f"the {what} is longer than {MOST_REASON} characters ({len(why)}); say it in fewer")
    odd = next((character for character in why if not character.isprintable()), None)
    if odd is not None and len(f"{odd}.".splitlines()) > 1:
        raise BadRequest(f"the {what} has more than one line; give it one")
    if odd is not None:
        raise BadRequest(f"the {what} has a character that cannot be printed (U+{ord(odd):04X}); leave it out")


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
