"""Places where a fault may meet a rollout: its phase, and the kind of its stage; derived from the product's own lists.

A stage of a new kind has no row here, and tests fail until it has one and is met by faults, as they do for a new phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from global_learner.rollout.plan import Stage
from global_learner.rollout.state import RolloutPhase, RolloutState

Place = tuple[str, str]
"""Phase, and kind of the stage."""
NOWHERE: Place = ("", "")
"""Before there is a rollout."""

KINDS: tuple[str, ...] = tuple(
    get_args(stage.model_fields["kind"].annotation)[0] for stage in get_args(get_args(Stage)[0])
)
STAGES: Mapping[str, Mapping[str, Any]] = {
    "gate": {},
    "shadow": {"hours": 1e-6},
    "canary": {"count": 3, "days": 300},
    "wave": {"share": 0.7, "days": 300},
    "fleet": {"days": 300},
}
"""Of each kind the stage that tests use, which passes as soon as there is any evidence."""
ASKED = ("gate",)
"""Stages that bring no verdict in tests, as their learner replays nothing: an operator is asked."""

BACK_AT_ONCE = ("gate", "shadow")
"""Stages in which nobody acts on the candidate: going back is over as it begins."""


def content(*kinds: str) -> list[dict[str, Any]]:
    """Stages of a plan, all unless some are named."""
    return [{"kind": kind, **STAGES[kind]} for kind in kinds or KINDS]


def place(state: RolloutState) -> Place:
    """Where a rollout stands."""
    return state.phase.value, state.current_stage.kind


def all_places() -> set[Place]:
    """Every place that can be reached but for an end, behind which nothing is written."""
    asking = {(RolloutPhase.ASKING.value, kind) for kind in ASKED}
    back = {(RolloutPhase.ROLLING_BACK.value, kind) for kind in KINDS if kind not in BACK_AT_ONCE}
    others = [
        phase
        for phase in RolloutPhase
        if not phase.over and phase not in (RolloutPhase.ASKING, RolloutPhase.ROLLING_BACK)
    ]
    return asking | back | {(phase.value, kind) for phase in others for kind in KINDS}
