"""Rivals: who else sets the size of a job, such as an autoscaler, a tool that applies manifests, or a person; pure.

A job that has another size than the one that was set last, and that its annotation still names, was set back. Once may
be a mistake of either side. From the second time on it is a contest, which costs the job its pods each time: the agent
leaves it the size, and tries again after a pause that doubles.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cluster_agent.backends.kubernetes.observation import ObservedTarget, seconds_of
from cluster_agent.kubernetes.api_server import FIELD_MANAGER, whole_time
from cluster_agent.kubernetes.resources import Json, as_dict
from foundation.text import parse_json
from policy_net.domain import DecisionOrigin

CONTEST: Final = 2
"""Times that a size is set back before the agent gives in."""
_FIRST_SECONDS: Final = 600.0
_LONGEST_SECONDS: Final = 86_400.0
_MOST_DOUBLINGS: Final = 8


# Allocation: the last change of a job's size, as it stands on the job and in its target's status.
#
# It is written on the job with the change itself, in one patch, so that an agent that ends in between loses nothing of
# it; whoever comes next has it from there.

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


def allocation(
    workers: int, reason: str, origin: DecisionOrigin, epoch: int, unix_seconds: float, recent: Iterable[float]
) -> Json:
    """A change that is made, as it stands in the status.

    Args:
        origin: of the decision.
        epoch: of the lease under which it is made.
        recent: Unix times of the changes within an hour, this one among them if it counts.
    """
    return {
        "workers": workers,
        "time": whole_time(unix_seconds),
        "policyVersion": origin.policy,
        "decisionId": origin.number,
        "leaseEpoch": epoch,
        "reason": reason,
        "recentChanges": [whole_time(each) for each in recent],
    }


def as_note(found: Json) -> str:
    """What stands on the job."""
    return json.dumps(found, separators=(",", ":"))


def noted(member: ObservedTarget) -> Json | None:
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


def changed(member: ObservedTarget, known: Iterable[float], now: float) -> list[float]:
    """Unix times of the changes of a job within an hour: those that are known here, and those that are noted."""
    times = set(known)
    for found in (member.target.status.get("allocation"), noted(member)):
        stated = as_dict(found).get("recentChanges")
        times |= {seconds_of(each) for each in stated} if isinstance(stated, list) else set()
    # A clock may be set back; what is far ahead of it is nothing that happened.
    return sorted(each for each in times if -HOUR_SECONDS < now - each < HOUR_SECONDS)


@dataclass(frozen=True, slots=True)
class SetBack:
    """A size that somebody else has set back.

    Attributes:
        by: name of the field manager; empty where the server does not say.
        times: in a row.
        change: which of the agent's changes it was: its time and its decision.
    """

    ours: int
    theirs: int
    by: str
    times: int
    change: tuple[str, int]
    unix_seconds: float

    @property
    def line(self) -> str:
        """For people."""
        times = {1: "", 2: " twice"}.get(self.times, f" {self.times} times")
        who = self.by or "somebody else"
        return f"{who} has set it back to {self.theirs} workers{times}, after it was given {self.ours}"

    @property
    def until(self) -> float:
        """Unix time up to which the job keeps the other's size; in the past where it need not."""
        if self.times < CONTEST:
            return 0.0
        pause = _FIRST_SECONDS * 2.0 ** min(self.times - CONTEST, _MOST_DOUBLINGS)
        return self.unix_seconds + min(pause, _LONGEST_SECONDS)

    @property
    def words(self) -> str:
        """Why the job keeps its size, in a line."""
        again = datetime.fromtimestamp(self.until, UTC).strftime("%H:%M:%S")
        return f"{self.line}: it keeps that size until {again} UTC; stop one of the two, or set spec.updateMode to Off"


class Rivals:
    """What was set back, by the uid of the job. Forgetting it costs a change more before the agent gives in."""

    def __init__(self) -> None:
        self.found: dict[str, SetBack] = {}

    def poll(self, member: ObservedTarget, now: float) -> bool:
        """Check a job of which all is seen that was asked of it; whether it was set back since the last check."""
        facts, made = member.facts, noted(member)
        if made is None or seconds_of(made["time"]) < seconds_of(facts.created):  # the note of another job
            return False
        before = self.found.get(facts.uid)
        if facts.requested == made["workers"]:
            if before is not None and now - seconds_of(made["time"]) >= HOUR_SECONDS:
                del self.found[facts.uid]  # it stands
            return False
        change = made["time"], made["decisionId"]
        if facts.sized_by == FIELD_MANAGER or (before is not None and before.change == change):
            return False
        ours, theirs = made["workers"], facts.requested
        same = before is not None and (before.ours == ours or before.theirs == theirs)
        times = before.times + 1 if before is not None and same else 1
        self.found[facts.uid] = SetBack(ours, theirs, facts.sized_by, times, change, now)
        return True

    def forget(self, uids: Collection[str]) -> None:
        """Forget all jobs but these."""
        self.found = {uid: each for uid, each in self.found.items() if uid in uids}
