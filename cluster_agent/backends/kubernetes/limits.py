"""Limits of what an agent may do to jobs: whose size may change now, and why the others keep theirs; pure.

A platform team sets limits in the agent's settings; a namespace opts in by a label; whoever owns a job, its target or
the namespace freezes it by an annotation. And who else sets its size, such as an autoscaler, a tool that applies
manifests, or a person: a job that has another size than the one that was set last, and that its annotation still
names, was set back. Once may be a mistake of either side. From the second time on it is a contest, which costs the job
its pods each time: the agent leaves it the size, and tries again after a pause that doubles.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

from cluster_agent.backend_settings import DAYS, KubernetesLimits, MaintenanceWindow
from cluster_agent.backends.kubernetes.observation import ObservedTarget, seconds_of
from cluster_agent.kubernetes.api_server import FIELD_MANAGER, whole_time
from cluster_agent.kubernetes.resources import Json, as_dict
from cluster_agent.kubernetes.targets import FROZEN, StatedReason, TargetUpdateMode, is_frozen
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
    """A size that somebody else has set back, so many times in a row.

    Attributes:
        by: name of the field manager; empty where the server does not say.
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


OPT_IN: Final = "fedl2.io/update-mode"
"""A label of a namespace; with `Auto` its targets may ask for sizes to be set."""


class Reason(StrEnum):
    """The word of a condition and of an Event; a kind of target may have words of its own (`WaitsForKueue`)."""

    ADVISED = "Advised"
    SET = "Set"
    NOT_USABLE = "NotUsable"
    NOT_OPTED_IN = "NotOptedIn"
    FROZEN = "Frozen"
    MAINTENANCE_WINDOW = "MaintenanceWindow"
    LIMITED_BY_RATE = "LimitedByRate"
    SET_BACK = "SetBack"
    POLICY_FAILED = "PolicyFailed"
    CHANGE_FAILED = "ChangeFailed"
    PENDING = "Pending"
    WAITS_FOR_CAPACITY = "WaitsForRoom"
    WAITS = "Waits"
    BOUNDS_AND_SHARES = "BoundsAndShares"
    WITHIN_LIMITS = "WithinLimits"
    POD_WAITS = "PodWaits"


@dataclass(frozen=True, slots=True)
class NamespaceFacts:
    """What is kept of a namespace."""

    has_opted_in: bool
    is_frozen: bool


def namespace_facts(found: Json) -> NamespaceFacts:
    """What is kept of a namespace as the API gives it."""
    metadata = found["metadata"]
    labels = metadata.get("labels") or {}
    return NamespaceFacts(labels.get(OPT_IN) == TargetUpdateMode.AUTO, is_frozen(metadata.get("annotations")))


@dataclass(frozen=True, slots=True)
class LimitSituation:
    """What limits depend on besides the jobs.

    Attributes:
        namespaces: by name; without those that cannot be read.
        unread: why these cannot, in a line.
        changed: Unix times of the changes of each job, by its uid.
        failing: why the changes of a job are given up for now, by its uid.
        set_back: what somebody else has set back, by the job's uid.
        policy_failed: why the decision is not the policy's, in a word; empty where it is.
    """

    unix_seconds: float
    namespaces: Mapping[str, NamespaceFacts] = field(default_factory=dict)
    unread: str = ""
    changed: Mapping[str, Sequence[float]] = field(default_factory=dict)
    failing: Mapping[str, str] = field(default_factory=dict)
    policy_failed: str = ""
    set_back: Mapping[str, SetBack] = field(default_factory=dict)


def limit_of(member: ObservedTarget, situation: LimitSituation, limits: KubernetesLimits) -> StatedReason | None:
    """Why a target's job keeps its size now; None where it may change."""
    target, facts = member.target, member.facts
    if target.mode is TargetUpdateMode.OFF:
        return StatedReason(Reason.ADVISED, "spec.updateMode is Off")
    return (
        _not_opted_in(target.namespace, situation)
        or _frozen(member, situation)
        or _in_maintenance(limits.maintenance, situation.unix_seconds)
        or facts.delay
        or _failed(facts.uid, situation)
        or _contested(facts.uid, situation)
        or _too_often(member, situation, limits.changes_per_hour)
    )


def pod_waits(member: ObservedTarget) -> StatedReason | None:
    """Why a job does not grow, whoever decides: a pod of it does not start, as others like it would not."""
    return StatedReason(Reason.POD_WAITS, f"it does not grow: {member.trouble}") if member.trouble else None


def has_opted_in(member: ObservedTarget, situation: LimitSituation) -> bool:
    """Whether sizes may be set at all, now or later."""
    return member.target.mode is TargetUpdateMode.AUTO and _not_opted_in(member.target.namespace, situation) is None


def _not_opted_in(namespace: str, situation: LimitSituation) -> StatedReason | None:
    found = situation.namespaces.get(namespace)
    if found is None and situation.unread:
        return StatedReason(Reason.NOT_OPTED_IN, f"which namespaces have opted in is not known: {situation.unread}")
    if found is None or not found.has_opted_in:
        return StatedReason(Reason.NOT_OPTED_IN, f"namespace {namespace} has no label {OPT_IN}={TargetUpdateMode.AUTO}")
    return None


def _frozen(member: ObservedTarget, situation: LimitSituation) -> StatedReason | None:
    namespace = situation.namespaces.get(member.target.namespace)
    for what, frozen in (
        ("the ElasticTarget", member.target.is_frozen),
        (f"{member.target.ref.kind} {member.target.ref.name}", is_frozen(member.facts.annotations)),
        (f"namespace {member.target.namespace}", namespace is not None and namespace.is_frozen),
    ):
        if frozen:
            return StatedReason(Reason.FROZEN, f"{what} has the annotation {FROZEN}")
    return None


def _in_maintenance(windows: Sequence[MaintenanceWindow], unix_seconds: float) -> StatedReason | None:
    window = next((each for each in windows if is_within(each, unix_seconds)), None)
    if window is None:
        return None
    days = "" if set(window.days) == set(DAYS) else f", {'/'.join(window.days)}"
    return StatedReason(
        Reason.MAINTENANCE_WINDOW, f"no changes from {window.begin} to {window.end} {window.timezone}{days}"
    )


def is_within(window: MaintenanceWindow, unix_seconds: float) -> bool:
    """Whether a moment is in a window, by local time of its time zone."""
    now = datetime.fromtimestamp(unix_seconds, ZoneInfo(window.timezone))
    time, today = now.strftime("%H:%M"), DAYS[now.weekday()]
    if window.begin < window.end:
        return today in window.days and window.begin <= time < window.end
    yesterday = DAYS[(now - timedelta(days=1)).weekday()]
    return (today in window.days and time >= window.begin) or (yesterday in window.days and time < window.end)


def _failed(uid: str, situation: LimitSituation) -> StatedReason | None:
    if situation.policy_failed:
        line = f"the policy failed ({situation.policy_failed}): what stands in for it changes nothing"
        return StatedReason(Reason.POLICY_FAILED, line)
    return StatedReason(Reason.CHANGE_FAILED, situation.failing[uid]) if uid in situation.failing else None


def _contested(uid: str, situation: LimitSituation) -> StatedReason | None:
    found = situation.set_back.get(uid)
    contested = found is not None and situation.unix_seconds < found.until
    return StatedReason(Reason.SET_BACK, found.words) if found is not None and contested else None


def _too_often(member: ObservedTarget, situation: LimitSituation, most: int) -> StatedReason | None:
    times = sorted(
        each for each in situation.changed.get(member.facts.uid, ()) if situation.unix_seconds - each < HOUR_SECONDS
    )
    if not member.facts.workers or len(times) < most:
        return None
    again = datetime.fromtimestamp(times[-most] + HOUR_SECONDS, UTC).strftime("%H:%M:%S")
    return StatedReason(
        Reason.LIMITED_BY_RATE, f"{len(times)} changes within an hour, of at most {most}; again at {again} UTC"
    )
