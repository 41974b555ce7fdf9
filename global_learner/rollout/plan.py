"""Plan of a rollout, a YAML file: its stages in order, pinned clusters, freezes and queries. All of it has defaults."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AwareDatetime, Field, model_validator

from foundation.text import nearest
from global_learner.errors import BadRequest
from global_learner.rollout.queries import Query
from policy_net.errors import BadInput
from policy_net.settings import Section, checked_settings, read_settings_file

if TYPE_CHECKING:
    from global_learner.rollout.verdicts.verdict import Rule

_LONGEST_CHARACTERS = 1 << 16
_WEEK_HOURS = 168.0
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


class GateStage(Section):
    """Replays before any cluster is touched: a version that is clearly worse goes no further."""

    kind: Literal["gate"]


class ShadowStage(Section):
    """Every cluster computes both versions' decisions, and carries out the incumbent's."""

    kind: Literal["shadow"]
    hours: float = Field(24.0, gt=0.0, le=24.0 * 90)
    """How long. A day has its night and its rush."""


class CanaryStage(Section):
    """A few clusters alternate between incumbent and candidate."""

    kind: Literal["canary"]
    clusters: tuple[str, ...] = ()
    """Which; unless named, `count` of those that are there are drawn."""
    count: int = Field(2, ge=1, le=1000)
    """How many are drawn. One alone decides nothing: of a single canary an operator is asked."""
    days: float = Field(14.0, gt=0.0, le=365.0)
    """How long a verdict is waited for, until an operator is asked."""


class WaveStage(Section):
    """A larger share of the fleet; the clusters of earlier stages act on the candidate, the new ones alternate."""

    kind: Literal["wave"]
    share: float = Field(gt=0.0, le=1.0)
    """Of the clusters that take part, those of earlier stages among them."""
    days: float = Field(14.0, gt=0.0, le=365.0)
    """As a canary's."""


class FleetStage(Section):
    """All clusters that take part; when it passes, the candidate acts in all of them and the rollout is done."""

    kind: Literal["fleet"]
    days: float = Field(14.0, gt=0.0, le=365.0)
    """As a canary's."""


Stage = Annotated[GateStage | ShadowStage | CanaryStage | WaveStage | FleetStage, Field(discriminator="kind")]
_ORDER = ("gate", "shadow", "canary", "wave", "fleet")
_DEFAULT_STAGES: tuple[Stage, ...] = (
    GateStage(kind="gate"),
    ShadowStage(kind="shadow"),
    CanaryStage(kind="canary"),
    WaveStage(kind="wave", share=0.5),
    FleetStage(kind="fleet"),
)


class DatesFreeze(Section):
    """From one date to another no stage begins."""

    kind: Literal["dates"]
    begin: AwareDatetime
    """With its time zone, such as 2026-12-20T00:00:00Z."""
    end: AwareDatetime
    """The same."""

    @model_validator(mode="after")
    def _in_order(self) -> DatesFreeze:
        if self.end <= self.begin:
            raise ValueError(f"ends at {self.end.isoformat()}, before it begins: exchange begin and end")
        return self

    def end_of(self, now: datetime) -> datetime | None:
        """End of the window that holds at a time; None if none does."""
        return self.end if self.begin <= now < self.end else None


class WeeklyFreeze(Section):
    """On some days of the week, from an hour on and for some hours, no stage begins; UTC."""

    kind: Literal["weekly"]
    days: tuple[Day, ...] = Field(min_length=1)
    """On which the window begins: mon, tue, wed, thu, fri, sat, sun."""
    from_hour: float = Field(0.0, ge=0.0, lt=24.0)
    """Of the day, UTC."""
    hours: float = Field(24.0, gt=0.0, le=_WEEK_HOURS)
    """How long it lasts; it may go on into the next days."""

    def end_of(self, now: datetime) -> datetime | None:
        """End of the window that holds at a time; None if none does."""
        midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        ends = []
        for back in range(8):
            day = midnight - timedelta(days=back)
            begin = day + timedelta(hours=self.from_hour)
            if _DAYS[day.weekday()] in self.days and begin <= now < begin + timedelta(hours=self.hours):
                ends.append(begin + timedelta(hours=self.hours))
        return max(ends, default=None)


Freeze = Annotated[DatesFreeze | WeeklyFreeze, Field(discriminator="kind")]


class VerdictSettings(Section):
    """Bounds and error rates that stages are judged by."""

    margin_percent: float = Field(3.0, gt=0.0, le=100.0)
    """The largest mean loss in jobs in the system that is let pass. Smaller ones take many more days to exclude."""
    false_alarm_percent: float = Field(5.0, gt=0.0, le=50.0)
    """Probability that a candidate that is no worse is rolled back, over the whole rollout."""
    false_pass_percent: float = Field(5.0, gt=0.0, le=50.0)
    """Probability that one that is worse than the margin passes a stage."""
    held_loss_percent: float = Field(2.0, ge=0.0, le=100.0)
    """Least loss of one cluster for which it goes back to the incumbent by itself."""
    guard_tolerance_percent: float = Field(0.5, ge=0.0, le=100.0)
    """Of decisions, by which two blocks must differ to count as more interventions of the guard."""
    latency_tolerance_seconds: float = Field(0.1, ge=0.0, le=60.0)
    """By which the 99th percentiles of two blocks' decisions must differ to count as slower."""
    least_pairs: int = Field(2, ge=1, le=1000)
    """Pairs of blocks of every cluster of a stage before it may pass."""
    shadow_decisions: int = Field(20, ge=1, le=1_000_000)
    """Decisions that a cluster must have computed twice before the shadow stage counts it."""
    shadow_failed_percent: float = Field(1.0, ge=0.0, le=100.0)
    """Largest share of a cluster's decisions in the shadow stage that the candidate may not have made, or too late."""
    shadow_guard_percent: float = Field(2.0, ge=0.0, le=100.0)
    """Of decisions, by which the guard may step in more often with the candidate than with the incumbent there."""

    @property
    def rule(self) -> Rule:
        """The rule of `judge`."""
        # Loaded here: who checks a plan, as policyctl does, waits for no statistics.
        from global_learner.rollout.verdicts.verdict import Rule  # noqa: PLC0415

        return Rule(
            margin=self.margin_percent / 100.0,
            false_alarm=self.false_alarm_percent / 100.0,
            false_pass=self.false_pass_percent / 100.0,
            held_loss=self.held_loss_percent / 100.0,
            guard_tolerance=self.guard_tolerance_percent / 100.0,
            latency_tolerance_seconds=self.latency_tolerance_seconds,
            least_pairs=self.least_pairs,
        )


class RolloutPlan(Section):
    """A rollout's plan."""

    stages: tuple[Stage, ...] = Field(_DEFAULT_STAGES, min_length=1, max_length=32)
    """In order: gate, shadow, canary, any number of waves, fleet, which is the last; others may be left out."""
    pinned: tuple[str, ...] = ()
    """Clusters that stay with what they have, whatever comes of the rollout."""
    freeze: tuple[Freeze, ...] = Field((), max_length=64)
    """When no stage begins. What has begun goes on, and going back is never held up."""
    verdict: VerdictSettings = VerdictSettings()
    """What stages are judged by."""
    queries: tuple[Query, ...] = Field((), max_length=16)
    """Numbers of Prometheus that stages are judged by, too."""

    @model_validator(mode="after")
    def _in_order(self) -> RolloutPlan:
        kinds: list[str] = [stage.kind for stage in self.stages]
        places = [_ORDER.index(kind) for kind in kinds]
        if places != sorted(places):
            raise ValueError(f"stages are in the order {', '.join(kinds)}: put them in the order {', '.join(_ORDER)}")
        for kind in _ORDER:
            if kind != "wave" and kinds.count(kind) > 1:
                raise ValueError(f"stages name {kind} {kinds.count(kind)} times: name it once")
        if kinds[-1] != "fleet":
            raise ValueError(f"the last of the stages is {kinds[-1]}: end with fleet")
        shares = [stage.share for stage in self.stages if isinstance(stage, WaveStage)]
        if shares != sorted(set(shares)):
            listed = ", ".join(f"{share:g}" for share in shares)
            raise ValueError(f"waves have the shares {listed}: let every wave be larger than the one before")
        both = sorted({name for stage in self.stages if isinstance(stage, CanaryStage) for name in stage.clusters}
                      & set(self.pinned))  # fmt: skip
        if both:
            raise ValueError(f"{', '.join(both)}: a canary and pinned at once; name it in one of the two")
        names = [query.name for query in self.queries]
        for query in self.queries:
            if names.count(query.name) > 1:
                raise ValueError(f"queries name {query.name} {names.count(query.name)} times: give each its own name")
            if not any(query.is_of(kind) for kind in kinds):
                raise ValueError(f"query {query.name} is of none of the plan's stages ({', '.join(kinds)})")
        return self

    def freeze_end(self, now_unix_seconds: float) -> float | None:
        """When stages may begin again, in Unix seconds; None if they may."""
        now, until = datetime.fromtimestamp(now_unix_seconds, UTC), None
        for _ in range(len(self.freeze) + 1):  # one window may end within another
            at = until or now
            ends = [end for window in self.freeze if (end := window.end_of(at)) is not None]
            if not ends:
                break
            until = max(ends)
        return None if until is None else until.timestamp()


def read_plan(path: Path) -> RolloutPlan:
    """Read a plan's file.

    Raises:
        BadInput: not there, no YAML, an unknown stage or setting, stages in the wrong order.
    """
    return read_settings_file(path, RolloutPlan, "stages")


def plan_of(plan_json: str) -> RolloutPlan:
    """The plan of a request; an empty text is the built-in one.

    Raises:
        BadRequest: no plan, or too long.
    """
    if not plan_json:
        return RolloutPlan()
    if len(plan_json) > _LONGEST_CHARACTERS:
        raise BadRequest(f"the plan has {len(plan_json)} characters; at most {_LONGEST_CHARACTERS} are read")
    try:
        content = json.loads(plan_json)
        if not isinstance(content, dict):
            raise BadRequest("the plan is no JSON object")
        return checked_settings(content, RolloutPlan, "plan")
    except (BadInput, ValueError, RecursionError) as error:
        raise BadRequest(f"the plan cannot be used: {error}") from error


def check_names(plan: RolloutPlan, enrolled: Collection[str]) -> None:
    """Check that every cluster of a plan is enrolled.

    Raises:
        BadRequest: one is not.
    """
    named = [("pinned", name) for name in plan.pinned]
    named += [("canary", name) for stage in plan.stages if isinstance(stage, CanaryStage) for name in stage.clusters]
    for where, name in named:
        if name not in enrolled:
            near = nearest(name, sorted(enrolled))
            advice = f"did you mean {near!r}?" if near else f"the fleet has {', '.join(sorted(enrolled)) or 'none'}"
            raise BadRequest(f"the plan's {where} names cluster {name!r}, which is not enrolled; {advice}")
