"""State of a rollout, the events that change it, and what follows from them: transitions and assignments.

The state (phase, stage, role of each cluster) is frozen, and stored as JSON. `RolloutMember.role` alone says which
versions a cluster may act on; `machine.step` alone changes it. Events are numbered. An event and its transition are
stored in one transaction, and an event that comes again after a crash changes nothing. No I/O and no clock: silences
are handed in.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from global_learner.errors import BadRequest
from global_learner.rollout.plan import RolloutPlan, Stage
from global_learner.rollout.verdicts.verdict import StageOutcome
from policy_net.exchange.rollout_assignment import AssignmentRole, RolloutAssignment
from policy_net.settings import Section

MOST_REASON = 500
"""Characters of an operator's reason, which is free text."""


class RolloutPhase(StrEnum):
    """Phase of a rollout."""

    RUNNING = "running"
    ASKING = "asking"
    """A stage's time is over without a verdict: an operator promotes or aborts."""
    PAUSED = "paused"
    """By an operator, or because something it would go back to is gone. Nothing new begins; going back still does."""
    ROLLING_BACK = "rolling-back"
    """All clusters are to act on their incumbent; not all that are there have reported it."""
    ROLLED_BACK = "rolled-back"
    DONE = "done"

    @property
    def over(self) -> bool:
        """Whether another rollout may begin."""
        return self in (RolloutPhase.ROLLED_BACK, RolloutPhase.DONE)


class VersionRole(StrEnum):
    """Which of the two versions acts in a cluster, and what for."""

    INCUMBENT = "incumbent"
    SHADOW = "shadow"
    """The incumbent acts; the candidate's decisions are computed, and not obeyed."""
    ALTERNATING = "alternating"
    """Both act, block by block."""
    CANDIDATE = "candidate"
    PINNED = "pinned"
    """Left alone by an operator's wish."""
    HELD = "held"
    """Worse off by itself: the incumbent acts to the end of the rollout."""

    @property
    def takes_part(self) -> bool:
        """Whether later stages may reach the cluster."""
        return self not in (VersionRole.PINNED, VersionRole.HELD)


class RolloutMember(Section):
    """One cluster of a rollout."""

    cluster: str
    incumbent: int
    """Version that it goes back to: the one it acted on as it joined."""
    role: VersionRole = VersionRole.INCUMBENT
    since_stage: int | None = None
    """The stage in which it began to alternate."""
    since_unix_seconds: float | None = None
    """When it began to alternate; None: never, or an earlier program ran, which did not keep it."""
    acting: int | None = None
    """Version that its agent last reported to act on."""
    away: bool = False
    """Its agent is silent. Its assignment holds, and it gets it on its return."""


class RolloutState(Section):
    """One rollout."""

    number: int
    candidate: int
    plan: RolloutPlan
    phase: RolloutPhase = RolloutPhase.RUNNING
    stage: int = 0
    """Index into the plan's stages."""
    stage_unix_seconds: float
    """When the stage began."""
    latest_unix_seconds: float
    """Time of the latest event; never goes backwards."""
    started_unix_seconds: float
    events: int = 0
    """Number of the latest event taken."""
    reason: str = Field("", max_length=2000)
    """Why it is not running."""
    members: tuple[RolloutMember, ...] = ()
    """By name."""

    @property
    def current_stage(self) -> Stage:
        """The present stage."""
        return self.plan.stages[self.stage]

    def member(self, cluster: str) -> RolloutMember | None:
        """A cluster's row."""
        return next((member for member in self.members if member.cluster == cluster), None)

    @property
    def trying(self) -> tuple[str, ...]:
        """Clusters that have the candidate: it acts there, alternates or shadows."""
        has = (VersionRole.SHADOW, VersionRole.ALTERNATING, VersionRole.CANDIDATE)
        return tuple(member.cluster for member in self.members if member.role in has)

    @property
    def untouched(self) -> tuple[str, ...]:
        """Clusters that the candidate has not reached, and that act on another version."""
        return tuple(
            member.cluster
            for member in self.members
            if member.role is VersionRole.INCUMBENT and member.incumbent != self.candidate
        )

    @property
    def incumbents(self) -> set[int]:
        """Versions other than the candidate that its clusters would go back to."""
        return {member.incumbent for member in self.members if member.role.takes_part} - {self.candidate}


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


# Assignments as agents get them, with blocks as long as the cluster's jobs ask for.

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
