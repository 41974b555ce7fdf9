"""Steps of stand-in controllers: each notes what changes, and does in steps what follows from it.

A step runs in the thread that owns the store, as one piece between two requests: what another client writes comes
before it or after it. Nothing waits in between; what is due later is said as a time of the store's clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Protocol

from apiserver.store import Change

Json = dict[str, Any]
Pair = tuple[str, str]
"""Namespace and name."""


class Controller(Protocol):
    """A stand-in."""

    def note(self, change: Change) -> None:
        """Remember what a change asks for; nothing is written here."""

    def step(self) -> float | None:
        """Do what there is to do; when there is more, in seconds of the store's clock."""


class Due:
    """Names to look at again, now or later.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._now: dict[Pair, None] = {}
        self._later: list[tuple[float, Pair]] = []

    def add(self, name: Pair, at: float | None = None) -> None:
        """Have a name looked at, at a time of the clock; at once where none is given."""
        if at is None:
            self._now[name] = None
        else:
            heapq.heappush(self._later, (at, name))

    def take(self) -> list[Pair]:
        """All that are due, in the order in which they came."""
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            self._now[heapq.heappop(self._later)[1]] = None
        found = list(self._now)
        self._now.clear()
        return found

    def next_at(self) -> float | None:
        """When the next one is due."""
        if self._now:
            return self._clock()
        return self._later[0][0] if self._later else None


def pair_of(found: Json) -> Pair:
    metadata = found["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def controller_of(found: Json) -> str:
    """The uid of the owner that controls an object; empty where none does."""
    for owner in found["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner["uid"])
    return ""


def has_ended(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def with_condition(
    conditions: list[Json] | None, now: str, kind: str, status: str, reason: str, text: str
) -> list[Json]:
    """Conditions with one of them set; its time changes with its status only."""
    was = next((each for each in conditions or () if each["type"] == kind), None)
    found: Json = {"type": kind, "status": status}
    found["lastTransitionTime"] = was["lastTransitionTime"] if was and was["status"] == status else now
    if reason:
        found["reason"] = reason
    if text:
        found["message"] = text
    if was is None:
        return [*(conditions or ()), found]
    return [found if each is was else each for each in conditions or ()]


def is_true(found: Json, kind: str) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)
