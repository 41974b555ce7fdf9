"""State of a rollout: where it stands, and what every cluster was told; frozen, and JSON whenever it is wanted.

`RolloutMember.role` is the only thing that says which versions a cluster may act on. It changes in `machine.step`
alone.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from global_learner.rollout.plan import RolloutPlan, Stage
from policy_net.settings import Section


class RolloutPhase(StrEnum):
    """What a rollout is doing."""

    RUNNING = "running"
    ASKING = "asking"
    """A stage's time is over without a verdict: an operator promotes or aborts."""
    PAUSED = "paused"
    """By an operator, or because something it would go back to is gone. Nothing new begins; going back still does."""
    ROLLING_BACK = "rolling-back"
    """Every cluster was told to act on what it had; not all that are there have said that they do."""
    ROLLED_BACK = "rolled-back"
    DONE = "done"

    @property
    def over(self) -> bool:
        """Whether another rollout may begin."""
        return self in (RolloutPhase.ROLLED_BACK, RolloutPhase.DONE)


class VersionRole(StrEnum):
    """Which of the two versions acts in a cluster."""

    INCUMBENT = "incumbent"
    SHADOW = "shadow"
    """The incumbent acts; the candidate's decisions are computed beside."""
    ALTERNATING = "alternating"
    """Both act, block by block."""
    CANDIDATE = "candidate"
    PINNED = "pinned"
    """An operator wants it left alone: the rollout tells it nothing."""
    HELD = "held"
    """It was worse off by itself: the incumbent acts to the end of the rollout."""

    @property
    def takes_part(self) -> bool:
        """Whether later stages may reach the cluster."""
        return self not in (VersionRole.PINNED, VersionRole.HELD)


class RolloutMember(Section):
    """One cluster of a rollout."""

    cluster: str
    incumbent: int
    """The version that it goes back to: what it acted on as it joined."""
    role: VersionRole = VersionRole.INCUMBENT
    since_stage: int | None = None
    """The stage in which it began to alternate."""
    since_unix_seconds: float | None = None
    """When it began to alternate; None: never, or an earlier program ran, which did not keep it."""
    acting: int | None = None
    """The version that its agent said last that it acts on."""
    away: bool = False
    """Its agent has not been heard of for a while. What it was told holds, and it learns of it on its return."""


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
    """Of the latest event; time does not go backwards here, whatever clocks do."""
    started_unix_seconds: float
    events: int = 0
    """The number of the latest event that was taken."""
    reason: str = Field("", max_length=2000)
    """Why it is not running."""
    members: tuple[RolloutMember, ...] = ()
    """By name."""

    @property
    def current(self) -> Stage:
        """The stage that it is in."""
        return self.plan.stages[self.stage]

    def member(self, cluster: str) -> RolloutMember | None:
        """A cluster's row."""
        return next((member for member in self.members if member.cluster == cluster), None)

    @property
    def trying(self) -> tuple[str, ...]:
        """The clusters that have the candidate, whether it acts there always, in turn, or not yet."""
        has = (VersionRole.SHADOW, VersionRole.ALTERNATING, VersionRole.CANDIDATE)
        return tuple(member.cluster for member in self.members if member.role in has)

    @property
    def untouched(self) -> tuple[str, ...]:
        """The clusters that the candidate has not reached, and that act on something else."""
        return tuple(
            member.cluster
            for member in self.members
            if member.role is VersionRole.INCUMBENT and member.incumbent != self.candidate
        )
