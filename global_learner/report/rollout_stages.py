"""Stages of a rollout as the report shows them: when each began, what it ended by, and which clusters it reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from foundation.figures import counted, duration
from global_learner.report.words import listed
from global_learner.rollout.plan import CanaryStage, FleetStage, GateStage, RolloutPlan, ShadowStage, Stage, WaveStage
from policy_net.exchange.generated import fleet_pb2

_SMALL = 0.1
"""Of an hour or a day; less is shown in a smaller unit."""
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


class Stages:
    """Stages of one rollout, from its plan, its verdicts and its events. `rows`: as the page reads them."""

    def __init__(self, rollout: fleet_pb2.Rollout, plan: RolloutPlan) -> None:
        self._rollout = rollout
        self._is_back = rollout.phase in ("rolling-back", "rolled-back")
        entering = [event for event in rollout.events if _brought(event, "rollout-stage")]
        first = rollout.stage - len(entering) + 1  # events of long ago may be left out
        self._entered = {first + place: event for place, event in enumerate(entering)}
        self._ending = next((event for event in rollout.events if _brought(event, "rollout-done")), None)
        turns = (event for event in reversed(rollout.events) if _brought(event, "rollout-rolling-back"))
        self._turning = next(turns, None)
        self.rows: Sequence[dict[str, Any]] = [self._row(number, stage) for number, stage in enumerate(plan.stages)]

    @property
    def present(self) -> str:
        """The stage in which it is, or ended."""
        return self._named(self._rollout.stage)

    def name(self, stage: int) -> str:
        """A stage's kind; of several waves with a number."""
        kinds = list(self._rollout.stages)
        kind = kinds[stage] if stage < len(kinds) else "stage"
        number = f" {kinds[: stage + 1].count(kind)}" if kinds.count(kind) > 1 else ""
        return f"{kind.capitalize()}{number}"

    def reasons(self, stage: int) -> list[str]:
        """Reasons of the latest verdict on a stage."""
        latest = next((verdict for verdict in reversed(self._rollout.verdicts) if verdict.stage == stage), None)
        return [] if latest is None else list(latest.reasons)

    def at(self, event: int) -> str:
        """The stage that an event found."""
        return self._named(max((stage for stage, entry in self._entered.items() if entry.number < event), default=0))

    def entered_by(self, event: int) -> str:
        """The stage that an event began; empty if it began none."""
        begun = next((stage for stage, entry in self._entered.items() if entry.number == event), 0)
        return self._named(begun) if begun else ""

    @property
    def why_back(self) -> str:
        """Reason why it goes back, in a sentence; empty unless it does."""
        if not self._is_back:
            return ""
        turning = self._turning
        if turning is not None and turning.what == "abort":
            return f"{turning.actor} aborted it in {self.present}" + (f": {turning.why}" if turning.why else ".")
        if turning is not None and turning.what == "version-gone":
            return f"The file of {turning.subject} is gone."
        reason, reasons = self._rollout.reason, self.reasons(self._rollout.stage)
        said = f"It failed in {self.present}: {'; '.join(reasons)}" if reasons else f"{reason[:1].upper()}{reason[1:]}"
        return f"{said}."

    def _named(self, stage: int) -> str:
        name = self.name(stage).lower()
        return f"the {name}" if name in ("gate", "fleet") else f"the {name} stage"

    def _row(self, number: int, stage: Stage) -> dict[str, Any]:
        rollout, is_present = self._rollout, number == self._rollout.stage
        left = self._entered.get(number + 1) or (self._ending if is_present else None)
        ended = left or (self._turning if is_present else None)
        word, tone = self._word(number, left)
        began = rollout.started_unix_seconds if number == 0 else None
        if number and number in self._entered:
            began = self._entered[number].unix_seconds
        reasons = self.reasons(number)
        return {
            "name": self.name(number),
            "word": word,
            "tone": tone,
            "plan": _planned(stage),
            "began_unix_seconds": began,
            "ended_unix_seconds": None if ended is None else ended.unix_seconds,
            "clusters": "" if isinstance(stage, ShadowStage) and reasons else _reached(rollout, number, stage),
            "said": reasons,
        }

    def _word(self, number: int, left: fleet_pb2.RolloutEvent | None) -> tuple[str, str]:
        rollout = self._rollout
        if number < rollout.stage or rollout.phase == "done":
            if left is not None and left.what == "promote":
                return f"promoted by {left.actor}", "warn"
            return "passed", "good"
        if number > rollout.stage:
            return ("not reached" if self._is_back else "ahead", "ahead")
        if self._is_back:
            return _ENDED.get(self._turning.what if self._turning is not None else "verdict", ("ended", "bad"))
        return _ENDED.get(rollout.phase, (rollout.phase, "now"))


def _brought(event: fleet_pb2.RolloutEvent, action: str) -> bool:
    return any(line.startswith(f"{action} ") for line in event.came_of_it)


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
    return f"{amount:g} {unit}" if amount >= _SMALL else duration(amount * unit_seconds)


def _reached(rollout: fleet_pb2.Rollout, number: int, stage: Stage) -> str:
    if isinstance(stage, ShadowStage):
        shadowed = [member for member in rollout.members if member.shadow_decisions]
        decisions = sum(member.shadow_decisions for member in shadowed)
        agreed = sum(member.shadow_agreed for member in shadowed)
        if not shadowed:
            return ""
        return f"{counted(len(shadowed), 'cluster')}, {counted(decisions, 'decision')}, {agreed / decisions:.0%} alike"
    here = [m.cluster for m in rollout.members if m.HasField("since_stage") and m.since_stage == number]
    return listed(here, 6) if here else ""
