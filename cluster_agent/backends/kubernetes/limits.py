"""Limits of what an agent may do to jobs: whose size may change now, and why the others keep theirs; pure.

A platform team sets limits in the agent's settings; a namespace opts in by a label; whoever owns a job, its target or
the namespace freezes it by an annotation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

from cluster_agent.backend_settings import DAYS, KubernetesLimits, MaintenanceWindow
from cluster_agent.backends.kubernetes.observation import ObservedTarget
from cluster_agent.backends.kubernetes.rivals import SetBack
from cluster_agent.kubernetes.resources import Json
from cluster_agent.kubernetes.targets.batch_job import ResizeHold
from cluster_agent.kubernetes.targets.elastic_target import FROZEN, TargetUpdateMode, is_frozen

OPT_IN: Final = "fedl2.io/update-mode"
"""A label of a namespace; with `Auto` its targets may ask for sizes to be set."""
_HOUR_SECONDS = 3600.0


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


def limit_of(member: ObservedTarget, situation: LimitSituation, limits: KubernetesLimits) -> ResizeHold | None:
    """Why a target's job keeps its size now; None where it may change."""
    target, facts = member.target, member.facts
    if target.mode is TargetUpdateMode.OFF:
        return ResizeHold(Reason.ADVISED, "spec.updateMode is Off")
    return (
        _not_opted_in(target.namespace, situation)
        or _frozen(member, situation)
        or _in_maintenance(limits.maintenance, situation.unix_seconds)
        or facts.hold
        or _failed(facts.uid, situation)
        or _contested(facts.uid, situation)
        or _too_often(member, situation, limits.changes_per_hour)
    )


def pod_waits(member: ObservedTarget) -> ResizeHold | None:
    """Why a job does not grow, whoever decides: a pod of it does not start, as others like it would not."""
    return ResizeHold(Reason.POD_WAITS, f"it does not grow: {member.trouble}") if member.trouble else None


def has_opted_in(member: ObservedTarget, situation: LimitSituation) -> bool:
    """Whether sizes may be set at all, now or later."""
    return member.target.mode is TargetUpdateMode.AUTO and _not_opted_in(member.target.namespace, situation) is None


def _not_opted_in(namespace: str, situation: LimitSituation) -> ResizeHold | None:
    found = situation.namespaces.get(namespace)
    if found is None and situation.unread:
        return ResizeHold(Reason.NOT_OPTED_IN, f"which namespaces have opted in is not known: {situation.unread}")
    if found is None or not found.has_opted_in:
        return ResizeHold(Reason.NOT_OPTED_IN, f"namespace {namespace} has no label {OPT_IN}={TargetUpdateMode.AUTO}")
    return None


def _frozen(member: ObservedTarget, situation: LimitSituation) -> ResizeHold | None:
    namespace = situation.namespaces.get(member.target.namespace)
    for what, frozen in (
        ("the ElasticTarget", member.target.is_frozen),
        (f"{member.target.ref.kind} {member.target.ref.name}", is_frozen(member.facts.annotations)),
        (f"namespace {member.target.namespace}", namespace is not None and namespace.is_frozen),
    ):
        if frozen:
            return ResizeHold(Reason.FROZEN, f"{what} has the annotation {FROZEN}")
    return None


def _in_maintenance(windows: Sequence[MaintenanceWindow], unix_seconds: float) -> ResizeHold | None:
    window = next((each for each in windows if is_within(each, unix_seconds)), None)
    if window is None:
        return None
    days = "" if set(window.days) == set(DAYS) else f", {'/'.join(window.days)}"
    return ResizeHold(
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


def _failed(uid: str, situation: LimitSituation) -> ResizeHold | None:
    if situation.policy_failed:
        line = f"the policy failed ({situation.policy_failed}): what stands in for it changes nothing"
        return ResizeHold(Reason.POLICY_FAILED, line)
    return ResizeHold(Reason.CHANGE_FAILED, situation.failing[uid]) if uid in situation.failing else None


def _contested(uid: str, situation: LimitSituation) -> ResizeHold | None:
    found = situation.set_back.get(uid)
    contested = found is not None and situation.unix_seconds < found.until
    return ResizeHold(Reason.SET_BACK, found.words) if found is not None and contested else None


def _too_often(member: ObservedTarget, situation: LimitSituation, most: int) -> ResizeHold | None:
    times = sorted(
        each for each in situation.changed.get(member.facts.uid, ()) if situation.unix_seconds - each < _HOUR_SECONDS
    )
    if not member.facts.workers or len(times) < most:
        return None
    again = datetime.fromtimestamp(times[-most] + _HOUR_SECONDS, UTC).strftime("%H:%M:%S")
    return ResizeHold(
        Reason.LIMITED_BY_RATE, f"{len(times)} changes within an hour, of at most {most}; again at {again} UTC"
    )
