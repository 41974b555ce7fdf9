"""State of a rollout: its phase and stage, and the role of each cluster; frozen, stored as JSON.

`RolloutMember.role` alone says which versions a cluster may act on; `machine.step` alone changes it.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from global_learner.rollout.plan import RolloutPlan, Stage
from policy_net.settings import Section


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
