"""The learner's answer to a pushed update."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What became of an update."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class PushAnswer:
    """The answer to an update.

    Attributes:
        reason: a `Rejection`, or empty; `detail` is for people.
        head_step: on disk when this is read; `weights` are of this step, None unless asked for.
        learning_rate: what the update was applied with.
    """

    outcome: Outcome
    head_step: int
    weights: bytes | None
    staleness: int = 0
    reason: str = ""
    detail: str = ""
    learning_rate: float = 0.0
    gradient_norm: float = 0.0
    active_clusters: int = 0
