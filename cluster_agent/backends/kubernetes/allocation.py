"""Allocation: the last change of a job's size, as it stands on the job and in its target's status.

It is written on the job with the change itself, in one patch, so that an agent that ends in between loses nothing of
it; whoever comes next has it from there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from cluster_agent.backends.kubernetes.observation import Member, seconds_of
from cluster_agent.kubernetes.api_server import Json, whole_time
from foundation.text import parse_json

ANNOTATION: Final = "fedl2.io/allocation"
HOUR_SECONDS: Final = 3600.0
_FIELDS = {
    "workers": int,
    "time": str,
    "policyVersion": str,
    "decisionId": int,
    "leaseEpoch": int,
    "reason": str,
    "recentChanges": list,
}


@dataclass(frozen=True, slots=True)
class Made:
    """A change that is made: by whose decision, under which lease, and when."""

    workers: int
    reason: str
    policy: str
    decision: int
    epoch: int
    unix_seconds: float


def allocation(made: Made, recent: Iterable[float]) -> Json:
    """What stands in the status.

    Args:
        recent: Unix times of the changes within an hour, this one among them if it counts.
    """
    return {
        "workers": made.workers,
        "time": whole_time(made.unix_seconds),
        "policyVersion": made.policy,
        "decisionId": made.decision,
        "leaseEpoch": made.epoch,
        "reason": made.reason,
        "recentChanges": [whole_time(each) for each in recent],
    }


def as_note(found: Json) -> str:
    """What stands on the job."""
    return json.dumps(found, separators=(",", ":"))


def noted(member: Member) -> Json | None:
    """The allocation that stands on a job; None where there is none, or somebody wrote something else there."""
    text = member.facts.annotations.get(ANNOTATION)
    try:
        found = None if text is None else parse_json(text)
    except ValueError:
        return None
    if not isinstance(found, dict) or set(found) != set(_FIELDS):
        return None
    typed = all(type(found[name]) is kind for name, kind in _FIELDS.items())
    return found if typed and all(seconds_of(each) for each in (found["time"], *found["recentChanges"])) else None


def changed(member: Member, known: Iterable[float], now: float) -> list[float]:
    """Unix times of the changes of a job within an hour: those that are known here, and those that are noted."""
    status: Any = member.target.status.get("allocation")
    times = set(known)
    for found in (status, noted(member)):
        stated = found.get("recentChanges") if isinstance(found, dict) else None
        times |= {seconds_of(each) for each in stated} if isinstance(stated, list) else set()
    # A clock may be set back; what is far ahead of it is nothing that happened.
    return sorted(each for each in times if -HOUR_SECONDS < now - each < HOUR_SECONDS)
