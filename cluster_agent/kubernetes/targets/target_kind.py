"""The protocol of a kind of target: how its size is read and changed; each kind is one file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cluster_agent.kubernetes.capacity import Amounts
from cluster_agent.kubernetes.node_choice import NodeChoice
from cluster_agent.kubernetes.resources import Resource

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ResizeHold:
    """Why an object's size must not be changed for now: a condition's reason, and a line."""

    reason: str
    line: str


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What is kept of an object that a target may point at.

    Attributes:
        uid: also of the owner of its pods.
        created: RFC 3339.
        started: likewise, when its pods were first made; empty before.
        workers: how many it asks for now; 0 while it is suspended.
        requested: how many it is to have by its own word, also while it is suspended.
        asks: what one worker takes; None where it cannot be read.
        choice: of nodes, by its pods.
        is_over: it is done, or has failed for good.
        obstacle: why its size cannot be changed, in a line; empty where it can.
        hold: why not for now, where it can.
        generation: rises with every change of what it asks for.
        sized_by: the field manager who set its size last; empty where the server does not say.
    """

    uid: str
    created: str
    started: str
    workers: int
    requested: int
    asks: Amounts | None
    choice: NodeChoice
    annotations: Mapping[str, str]
    is_over: bool
    obstacle: str = ""
    hold: ResizeHold | None = None
    generation: int = 0
    sized_by: str = ""


class TargetKind(Protocol):
    """One kind of object."""

    @property
    def resource(self) -> Resource:
        """Where such objects are."""
        ...

    def facts(self, found: Json) -> TargetFacts:
        """What is kept of one as the API gives it."""
        ...

    def resized(self, facts: TargetFacts, workers: int) -> Json:
        """The merge patch that gives one so many workers, at least one; it starts one that is suspended."""
        ...
