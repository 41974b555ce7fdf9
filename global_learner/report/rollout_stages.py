"""Stages of a rollout as the report shows them: when each began, what it ended by, and which clusters it reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from foundation.figures import duration
from global_learner.report.words import counted, listed
from global_learner.rollout.plan import CanaryStage, FleetStage, GateStage, RolloutPlan, ShadowStage, Stage, WaveStage
from policy_net.exchange.generated import fleet_pb2

_SMALL = 0.1
"""Of an hour or a day: less is said in a smaller unit."""
_ENDED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "running": ("now", "now"),
        "asking": ("asks", "warn"),
        "paused": ("paused", "warn"),
        "abort": ("aborted", "warn"),
        "version-gone": ("version gone", "bad"),
        "verdict": ("failed", "bad"),
    }
)
"""Words for the stage in which a rollout is, or ended, and how much they matter."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Stages of one rollout.

    Attributes:
        rows: as the page reads them.
        present: the stage in which it is, or ended.
        why_back: why it goes back, in a sentence; empty unless it does.
        entries: stage by the number of the event that began it.
    """

    rollout: fleet_pb2.Rollout
    rows: Sequence[dict[str, Any]]
    present: str
    why_back: str
    entries: Mapping[int, int]

    def name(self, stage: int) -> str:
        """What a stage is called."""
        return _name(self.rollout.stages, stage)

    def reasons(self, stage: int) -> list[str]:
        """Of the latest verdict on a stage."""
        return _reasons(self.rollout, stage)

    def at(self, event: int) -> str:
        """The stage that an event found."""
        before = [stage for number, stage in self.entries.items() if number < event]
        return self._named(max(before, default=0))

    def entered_by(self, event: int) -> str:
        """The stage that an event began; empty if it began none."""
        return self._named(self.entries[event]) if self.entries.get(event) else ""

    def _named(self, stage: int) -> str:
        return _named(self.rollout.stages, stage)


def stages_of(rollout: fleet_pb2.Rollout, plan: RolloutPlan) -> Stages:
    """The stages of a rollout, from its plan, its verdicts and its events."""
    entering = [event for event in rollout.events if _brought(event, "rollout-stage")]
    first = rollout.stage - len(entering) + 1  # events of long ago may be left out
    entered = {first + place: event for place, event in enumerate(entering)}
    ending = next((event for event in rollout.events if _brought(event, "rollout-done")), None)
    turning = next((event for event in reversed(rollout.events) if _brought(event, "rollout-rolling-back")), None)
    rows = []
    for number, stage in enumerate(plan.stages):
        left = entered.get(number + 1) or (ending if number == rollout.stage else None)
        word, tone = _word(rollout, number, left, turning)
        reasons = _reasons(rollout, number)
        began = rollout.started_unix_seconds if number == 0 else None
        if number and number in entered:
            began = entered[number].unix_seconds
        ended = left or (turning if number == rollout.stage else None)
        rows.append(
            {
                "name": _name(rollout.stages, number),
                "word": word,
                "tone": tone,
                "plan": _planned(stage),
                "began_unix_seconds": began,
                "ended_unix_seconds": None if ended is None else ended.unix_seconds,
                "clusters": "" if isinstance(stage, ShadowStage) and reasons else _reached(rollout, number, stage),
                "said": reasons,
            }
        )
    return Stages(
        rollout,
        rows,
        _named(rollout.stages, rollout.stage),
        _why_back(rollout, turning),
        {event.number: stage for stage, event in entered.items()},
    )


def _brought(event: fleet_pb2.RolloutEvent, action: str) -> bool:
    return any(line.startswith(f"{action} ") for line in event.came_of_it)


def _word(
    rollout: fleet_pb2.Rollout,
    number: int,
    left: fleet_pb2.RolloutEvent | None,
    turning: fleet_pb2.RolloutEvent | None,
) -> tuple[str, str]:
    if number < rollout.stage or rollout.phase == "done":
        return (
            (f"promoted by {left.actor}", "warn") if left is not None and left.what == "promote" else ("passed", "good")
        )
    back = rollout.phase in ("rolling-back", "rolled-back")
    if number > rollout.stage:
        return ("not reached", "ahead") if back else ("ahead", "ahead")
    if back:
        return _ENDED.get(turning.what if turning is not None else "verdict", ("ended", "bad"))
    return _ENDED.get(rollout.phase, (rollout.phase, "now"))


def _why_back(rollout: fleet_pb2.Rollout, turning: fleet_pb2.RolloutEvent | None) -> str:
    if rollout.phase not in ("rolling-back", "rolled-back"):
        return ""
    where = _named(rollout.stages, rollout.stage)
    if turning is not None and turning.what == "abort":
        return f"{turning.actor} aborted it in {where}" + (f": {turning.why}" if turning.why else ".")
    if turning is not None and turning.what == "version-gone":
        return f"The file of {turning.subject} is gone."
    reasons = _reasons(rollout, rollout.stage)
    return (
        f"It failed in {where}: {'; '.join(reasons)}."
        if reasons
        else f"{rollout.reason[:1].upper()}{rollout.reason[1:]}."
    )


def _reasons(rollout: fleet_pb2.Rollout, stage: int) -> list[str]:
    latest = next((verdict for verdict in reversed(rollout.verdicts) if verdict.stage == stage), None)
    return [] if latest is None else list(latest.reasons)


def _name(kinds: Sequence[str], stage: int) -> str:
    """A stage's kind; of several waves with a number."""
    kind = kinds[stage] if stage < len(kinds) else "stage"
    number = f" {list(kinds[: stage + 1]).count(kind)}" if list(kinds).count(kind) > 1 else ""
    return f"{kind.capitalize()}{number}"


def _named(kinds: Sequence[str], stage: int) -> str:
    name = _name(kinds, stage).lower()
    return f"the {name}" if name in ("gate", "fleet") else f"the {name} stage"


def _planned(stage: Stage) -> str:
    match stage:
        case GateStage():
            return "replays on fixed workloads"
        case ShadowStage():
            return f"{_span(stage.hours, 'h', 3600.0)} in every cluster"
        case CanaryStage():
            who = listed(list(stage.clusters), 4) if stage.clusters else counted(stage.count, "cluster")
        case WaveStage():
            who = f"{stage.share:.0%} of the fleet"
        case FleetStage():
            who = "every cluster"
    return f"{who}, up to {_span(stage.days, 'd', 86400.0)}"


def _span(amount: float, unit: str, unit_seconds: float) -> str:
    """As the plan says it; what is a small part of its unit in a smaller one."""
    return f"{amount:g} {unit}" if amount >= _SMALL else duration(amount * unit_seconds)


def _reached(rollout: fleet_pb2.Rollout, number: int, stage: Stage) -> str:
    """The clusters of a stage; of the shadow stage how many computed how much."""
    if isinstance(stage, ShadowStage):
        shadowed = [member for member in rollout.members if member.shadow_decisions]
        decisions = sum(member.shadow_decisions for member in shadowed)
        agreed = sum(member.shadow_agreed for member in shadowed)
        if not shadowed:
            return ""
        return f"{counted(len(shadowed), 'cluster')}, {counted(decisions, 'decision')}, {agreed / decisions:.0%} alike"
    here = [m.cluster for m in rollout.members if m.HasField("since_stage") and m.since_stage == number]
    return listed(here, 6) if here else ""
