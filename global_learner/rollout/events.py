"""Events of a rollout: what it is told, numbered, and what comes of one.

Events are stored before they are taken, and so is what came of them, in one transaction. Whoever goes on after a crash
takes them again in order: those that were taken already change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from global_learner.errors import BadRequest
from global_learner.rollout.state import RolloutState, VersionRole
from global_learner.rollout.verdicts.verdict import StageOutcome
from policy_net.settings import Section

MOST_REASON = 500
"""Characters of what an operator says for the reason, which is free text."""


class StageVerdict(Section):
    """The verdict on a stage; one on another stage than the present one is late, and changes nothing."""

    kind: Literal["verdict"] = "verdict"
    stage: int
    outcome: StageOutcome
    held: tuple[str, ...] = ()
    reason: str = ""


class Promote(Section):
    """An operator wants the next stage, whatever is known."""

    kind: Literal["promote"] = "promote"
    why: str = Field("", max_length=MOST_REASON)


class Pause(Section):
    """An operator wants nothing new to begin."""

    kind: Literal["pause"] = "pause"
    why: str = Field("", max_length=MOST_REASON)


class Resume(Section):
    """An operator wants it to go on."""

    kind: Literal["resume"] = "resume"
    why: str = Field("", max_length=MOST_REASON)


class Abort(Section):
    """An operator wants it undone."""

    kind: Literal["abort"] = "abort"
    why: str = Field("", max_length=MOST_REASON)


class VersionSeen(Section):
    """A cluster's agent said which version it acts on."""

    kind: Literal["seen"] = "seen"
    cluster: str
    acting: int


class Away(Section):
    """A cluster's agent was not heard of for a while."""

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
    """An operator wants a cluster left alone: it goes back to what it had, and stays there."""

    kind: Literal["pin"] = "pin"
    cluster: str
    why: str = Field("", max_length=MOST_REASON)


class VersionGone(Section):
    """A version can no longer be had; `instead` is what clusters go back to that would have gone back to it."""

    kind: Literal["version-gone"] = "version-gone"
    version: int
    instead: int


class VersionDamaged(Section):
    """The file of a version that the rollout needs is damaged, and can be put back."""

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
    """Something that happened, at a time, by somebody."""

    number: int = Field(ge=1)
    """Of the rollout's events, from 1 on without a gap."""
    unix_seconds: float
    actor: str = "learner"
    what: EventContent


@dataclass(frozen=True, slots=True)
class Assign:
    """Tell a cluster which versions it has, and which of them acts.

    Attributes:
        acting: the version that acts; of an alternating cluster, in the incumbent's blocks.
        challenger: the other version, which acts in the candidate's blocks or is only computed; None without one.
    """

    cluster: str
    role: VersionRole
    acting: int
    challenger: int | None = None


@dataclass(frozen=True, slots=True)
class RolloutAuditLine:
    """One line for the audit log."""

    actor: str
    action: str
    subject: str
    detail: str

    @property
    def words(self) -> str:
        """The line as people read it: what was done to whom, and what is to be said of it."""
        said = f"{self.action} {self.subject}"
        return f"{said}: {self.detail}" if self.detail else said


@dataclass(frozen=True, slots=True)
class Transition:
    """What came of an event."""

    state: RolloutState
    commands: tuple[Assign, ...] = ()
    audit: tuple[RolloutAuditLine, ...] = ()


def check_reason(why: str, what: str = "reason") -> None:
    """See that what an operator says for the reason, or in a note, can stand in the audit log.

    Raises:
        BadRequest: it cannot.
    """
    if len(why) > MOST_REASON:
        raise BadRequest(f"the {what} is longer than {MOST_REASON} characters ({len(why)}); say it in fewer")
    odd = next((character for character in why if not character.isprintable()), None)
    if odd is not None and len(f"{odd}.".splitlines()) > 1:
        raise BadRequest(f"the {what} has more than one line; give it one")
    if odd is not None:
        raise BadRequest(f"the {what} has a character that cannot be printed (U+{ord(odd):04X}); leave it out")
