"""Sizes that are set: a decision, kept within the limits, is carried out on the jobs whose targets ask for it.

What frees capacity goes first. What grows gets capacity once it is free, until the next decision or for as long as an
operator said; then less than all is better than nothing. Where anything is in doubt nothing changes: a policy that
failed, a view that is old, a lease that is gone. Each change, and each new reason why there is none, is an Event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cluster_agent.backend_settings import KubernetesLimits
from cluster_agent.backends.kubernetes.advice import LIMITED, RESIZED, TargetOutcome, advice
from cluster_agent.backends.kubernetes.changes import SizeWriter, Written
from cluster_agent.backends.kubernetes.cluster_watch import ClusterWatch
from cluster_agent.backends.kubernetes.limits import (
    CONTEST,
    LimitSituation,
    NamespaceFacts,
    Reason,
    Rivals,
    allocation,
    as_note,
    changed,
    has_opted_in,
    limit_of,
    noted,
    pod_waits,
)
from cluster_agent.backends.kubernetes.observation import Observed, ObservedTarget, seconds_of
from cluster_agent.backends.kubernetes.sizing import (
    SizeChange,
    UnpromisedCapacity,
    changes_of,
    fitted,
    fitting_size,
)
from cluster_agent.kubernetes.events import About, EventRecorder, EventType
from cluster_agent.kubernetes.resources import Json, condition_of
from cluster_agent.kubernetes.targets import ELASTIC_TARGETS, ElasticTarget, StatedReason, TargetUpdateMode
from policy_net.domain import Decision, DecisionOrigin

_FALLBACK = "fallback:"
_POLL_SECONDS = 1.0
"""Between two polls whether capacity is free: all pods are counted each time."""
_NO_NEWS = frozenset({Reason.SET, Reason.WAITS, Reason.PENDING})
"""No Events by themselves: a change has its own, and the others pass."""
_FAULTS = frozenset({Reason.CHANGE_FAILED, Reason.POLICY_FAILED, Reason.POD_WAITS, Reason.SET_BACK})


@dataclass(frozen=True, slots=True)
class Clocks:
    """Monotonic seconds, and Unix seconds."""

    monotonic: Callable[[], float]
    unix: Callable[[], float]


class Auto:
    """Carries decisions out; used by the thread of decisions. `epoch` is of the lease that is held; 0 without one."""

    def __init__(
        self,
        watch: ClusterWatch,
        writer: SizeWriter,
        events: EventRecorder,
        limits: KubernetesLimits,
        clocks: Clocks,
        epoch: Callable[[], int],
    ) -> None:
        self._watch, self._writer, self._events, self._limits = watch, writer, events, limits
        self._clocks, self._epoch = clocks, epoch
        self._waiting: list[SizeChange] = []
        self._give_up_seconds = 0.0
        self._polled_seconds = -float("inf")
        self._origin = DecisionOrigin()
        self._situation = LimitSituation(0.0)
        self._outcomes: dict[str, TargetOutcome] = {}
        self._changed: dict[str, list[float]] = {}
        self._rivals = Rivals()
        self._reported: dict[tuple[str, str], str] = {}
        self._says_why = False
        self._is_undone = False

    def begin(self, about: Observed, decision: Decision) -> Mapping[str, TargetOutcome]:
        """Carry out what can be now; `go_on` continues with what waits for capacity."""
        self._waiting, self._origin, self._is_undone = [], decision.origin, False
        members = {job_id: each for job_id, each in about.members.items() if not each.facts.is_over}
        self._count_waiting(members)
        if all(each.target.mode is TargetUpdateMode.OFF for each in members.values()):
            self._outcomes = {}
            return self._outcomes
        self._situation = situation = self._see(members, decision)
        limits = {job_id: limit_of(each, situation, self._limits) for job_id, each in members.items()}
        opted_in = {job_id for job_id, each in members.items() if has_opted_in(each, situation)}
        fixed = {
            job_id: self._writer.counted_workers(members[job_id].target)
            for job_id, why in limits.items()
            if why is not None or not self._writer.has_seen_all(members[job_id].target)
        }
        sizes = fitted(about.state, decision, fixed, self._limits.min_shares, about.reach)
        without_capacity = {job.job_id for job in about.state.jobs if not job.max_workers}
        old, self._outcomes = self._outcomes, {}
        for job_id, member in members.items():
            if member.target.mode is TargetUpdateMode.AUTO:
                why = limits[job_id] or pod_waits(member)
                why = why or _why_other(decision.of(job_id).workers, sizes[job_id], job_id in about.reach)
                stands = _stands(member, sizes[job_id], decision.of(job_id).workers, limits[job_id])
                if job_id in without_capacity and stands.reason == Reason.WAITS:
                    stands = StatedReason(
                        Reason.WAITS_FOR_CAPACITY, "the nodes that its pods may use have no room for its least"
                    )
                self._outcomes[job_id] = TargetOutcome(
                    self._writer.counted_workers(member.target),
                    why,
                    stands if job_id in opted_in else None,
                    stands.reason == Reason.SET,
                    self._last(member, old.get(job_id)),
                )
        self._give_up_seconds = self._clocks.monotonic() + self._limits.room_seconds
        for change in changes_of(about, {job_id: size for job_id, size in sizes.items() if job_id not in fixed}):
            if change.grows:
                self._waiting.append(change)
            else:
                self._set(change, change.after)
        self._give_capacity()
        self._report_reasons(members, opted_in)
        return self._outcomes

    def report_unusable(self, target: ElasticTarget, line: str) -> None:
        """Report a target that cannot be used: in an Event where Events may be written, else only counted."""
        if target.mode is TargetUpdateMode.AUTO:
            namespaces, _ = self._watch.namespaces()
            namespace = namespaces.get(target.namespace)
            if namespace is not None and namespace.has_opted_in:
                self._report_of(_about(target), Reason.NOT_USABLE, line, EventType.WARNING)
                return
        self._events.count(ELASTIC_TARGETS.kind, Reason.NOT_USABLE)

    @property
    def is_undone(self) -> bool:
        """Whether a change of the last decision could not be written; the next decision may have it."""
        return self._is_undone

    def go_on(self) -> Mapping[str, TargetOutcome] | None:
        """Check again whether there is capacity for what waits; None where nothing is new."""
        now = self._clocks.monotonic()
        has_moved = self._watch.pods_changed.is_set() and now - self._polled_seconds >= _POLL_SECONDS
        if not self._waiting or not (has_moved or now >= self._give_up_seconds):
            return None
        before = dict(self._outcomes)
        self._see_again()
        self._give_capacity()
        return None if self._outcomes == before else self._outcomes

    def _last(self, member: ObservedTarget, before: TargetOutcome | None) -> Json | None:
        """The last change of a job, which an earlier life of the agent may have made."""
        found = noted(member) if self._writer.has_seen_all(member.target) else None
        return found or (None if before is None else before.allocation)

    def _see_again(self) -> None:
        """Of what waits, keep what nobody has limited or changed meanwhile."""
        namespaces, unread = self._watch.namespaces()
        situation = replace(self._situation, unix_seconds=self._clocks.unix(), namespaces=namespaces, unread=unread)
        targets, waiting, self._waiting = self._watch.by_id(), self._waiting, []
        for change in waiting:
            target = targets.get(change.member.job_id)
            entry = None if target is None else self._watch.object_of(target)
            if target is None or entry is None or target.uid != change.member.target.uid:
                continue
            member = replace(change.member, target=target, facts=entry.kept)
            limit = limit_of(member, situation, self._limits)
            if limit is None:
                self._waiting.append(replace(change, member=member))
            else:
                self._outcomes[member.job_id] = replace(self._outcomes[member.job_id], limited=limit)
                self._note(member, limit)

    def _see(self, members: Mapping[str, ObservedTarget], decision: Decision) -> LimitSituation:
        namespaces, unread = self._watch.namespaces()
        now = self._clocks.unix()
        self._writer.forget(self._watch.uids())
        self._reported = {key: reason for key, reason in self._reported.items() if key[0] in members}
        self._changed = {
            each.facts.uid: changed(each, self._changed.get(each.facts.uid, ()), now) for each in members.values()
        }
        self._find_rivals(members, now, namespaces)
        failed = next((word.removeprefix(_FALLBACK) for word in decision.reasons if word.startswith(_FALLBACK)), "")
        return LimitSituation(
            now, namespaces, unread, self._changed, self._writer.failing(), failed, self._rivals.found
        )

    def _find_rivals(
        self, members: Mapping[str, ObservedTarget], now: float, namespaces: Mapping[str, NamespaceFacts]
    ) -> None:
        """Note whose size somebody else has set back, and report it; of a contest, its limit says so."""
        self._rivals.forget({each.facts.uid for each in members.values()})
        for member in members.values():
            namespace = namespaces.get(member.target.namespace)
            may_report = namespace is not None and namespace.has_opted_in
            if (
                member.target.mode is not TargetUpdateMode.AUTO
                or not self._writer.has_seen_all(member.target)
                or not may_report
            ):
                continue
            if self._rivals.poll(member, now):
                found = self._rivals.found[member.facts.uid]
                if found.times < CONTEST:
                    self._record_event(member, Reason.SET_BACK, found.line, EventType.WARNING)

    def _give_capacity(self) -> None:
        """Give those that grow what is free now, in their order."""
        self._watch.pods_changed.clear()
        self._polled_seconds = self._clocks.monotonic()
        if not self._waiting:
            return
        is_late = self._polled_seconds >= self._give_up_seconds
        free_capacity = self._free_capacity()
        is_last = is_late or not free_capacity.is_coming
        waiting, self._waiting = self._waiting, []
        for change in waiting:
            size = fitting_size(free_capacity, change, is_last=is_last)
            if size:
                self._set(change, size)
                continue
            if not is_last:
                self._waiting.append(change)
            line = f"to {change.words}, it waits for pods of others to be gone"
            if is_last:
                late = f" within {self._limits.room_seconds:g} s" if is_late else ""
                line = f"to {change.words}, there is no room on any node{late}; the next decision sees"
            self._note(change.member, StatedReason(Reason.WAITS_FOR_CAPACITY, line))

    def _free_capacity(self) -> UnpromisedCapacity:
        seen = self._watch.seen()
        holders = {}
        for target in seen.targets:
            facts = seen.found.get(target.object_key)
            if facts is not None and not facts.is_over:
                holders[facts.uid] = (facts, self._writer.counted_workers(target))
        return UnpromisedCapacity(seen.nodes, seen.pods, holders.values())

    def _set(self, change: SizeChange, workers: int) -> None:
        if not self._watch.is_fresh:
            written, line = Written.NOT_NOW, "the cluster has not been heard of lately: nothing changes"
        elif self._clocks.monotonic() > self._give_up_seconds + self._limits.room_seconds:
            written, line = Written.NOT_NOW, "the API server takes too long: the next decision counts"
        else:
            made = self._made(change, workers)
            written, line = self._writer.set(replace(change, after=workers), as_note(made))
        if written is Written.SET:
            self._on_set(change, made)
        else:
            self._is_undone = True
            reason = Reason.CHANGE_FAILED if written is Written.FAILED else Reason.PENDING
            self._note(change.member, StatedReason(reason, line))

    def _made(self, change: SizeChange, workers: int) -> Json:
        line = advice(change.before, workers)
        if workers < change.after:
            line += f"; {change.after} are wanted, and there is room for no more"
        rival = self._situation.set_back.get(change.member.facts.uid)
        if rival is not None and rival.theirs == change.before:
            line += f"; {rival.line}"
        now, times = self._clocks.unix(), self._changed.get(change.member.facts.uid, [])
        recent = [*times, now] if change.before else times
        return allocation(workers, line, self._origin, self._epoch(), now, recent)

    def _on_set(self, change: SizeChange, made: Json) -> None:
        member, job_id = change.member, change.member.job_id
        workers, line = made["workers"], made["reason"]
        self._changed[member.facts.uid] = [seconds_of(each) for each in made["recentChanges"]]
        reason = Reason.SET if workers == change.after else Reason.WAITS_FOR_CAPACITY
        resized = StatedReason(reason, f"has {workers} workers" if reason is Reason.SET else line)
        limited = self._outcomes[job_id].limited
        self._outcomes[job_id] = TargetOutcome(workers, limited, resized, reason is Reason.SET, made)
        why = f"{line} (policy {self._origin.policy or 'unknown'}, decision {self._origin.number})"
        self._record_event(member, "Resized" if change.before else "Started", why)

    def _note(self, member: ObservedTarget, why: StatedReason) -> None:
        self._outcomes[member.job_id] = replace(self._outcomes[member.job_id], resized=why, is_resized=False)
        self._report_reason(member, RESIZED, why)

    def _count_waiting(self, members: Mapping[str, ObservedTarget]) -> None:
        """Count jobs with a pod that does not start where only advice is given; once all do, the next is news again."""
        for job_id, member in members.items():
            waits = pod_waits(member)
            if waits is None:
                if self._reported.get((job_id, LIMITED)) == Reason.POD_WAITS:
                    self._reported[job_id, LIMITED] = ""
            elif member.target.mode is TargetUpdateMode.OFF:
                self._report_reason(member, LIMITED, waits, aloud=False)

    def _report_reasons(self, members: Mapping[str, ObservedTarget], opted_in: set[str]) -> None:
        for job_id, outcome in self._outcomes.items():
            if outcome.limited is not None:
                self._report_reason(members[job_id], LIMITED, outcome.limited, aloud=job_id in opted_in)

    def _report_reason(self, member: ObservedTarget, condition: str, why: StatedReason, *, aloud: bool = True) -> None:
        """Report a reason that is new; what stands in the status already was reported in an earlier life.

        Args:
            aloud: in Events, which a namespace that has not opted in does not allow.
        """
        stated = condition_of(member.target.status, condition).get("reason")
        reported = self._reported.get((member.job_id, condition), stated)
        self._reported[member.job_id, condition] = str(why.reason)
        if why.reason in _NO_NEWS or why.reason == reported:
            return
        if not aloud:
            self._events.count(ELASTIC_TARGETS.kind, str(why.reason))
            return
        is_fault = why.reason in _FAULTS
        self._record_event(member, str(why.reason), why.line, EventType.WARNING if is_fault else EventType.NORMAL)

    def _record_event(
        self, member: ObservedTarget, reason: str, line: str, event_type: EventType = EventType.NORMAL
    ) -> None:
        target = member.target
        job = About(target.ref.api_version, target.ref.kind, target.namespace, target.ref.name, member.facts.uid)
        for each in (_about(target), job):
            self._report_of(each, reason, line, event_type)

    def _report_of(self, about: About, reason: str, line: str, event_type: EventType) -> None:
        if not self._says_why:
            # Whoever only advises may not tell; here somebody has opted in.
            self._says_why = True
            self._watch.run(lambda: self._events.run(lambda: self._watch.is_stopping), "events")
        self._events.record(about, reason, line, event_type)


def _about(target: ElasticTarget) -> About:
    return About(ELASTIC_TARGETS.api_version, ELASTIC_TARGETS.kind, target.namespace, target.name, target.uid)


def _why_other(decided: int, size: int, is_confined: bool) -> StatedReason | None:
    """Why a job that may change gets another size than was decided; `is_confined`: it can use some nodes only."""
    if size == decided:
        return None
    if not decided and size:
        line = f"it runs, and is never stopped: it keeps {size} workers, though others would get more done with them"
    else:
        where = " on the nodes that it can use" if is_confined else ""
        line = f"{size} workers rather than {decided}: what is fixed and promised to others leaves no more{where}"
        if size > decided:
            line = f"{size} workers rather than {decided}: nobody else may have them now, or its namespace has a share"
    return StatedReason(Reason.BOUNDS_AND_SHARES, line)


def _stands(member: ObservedTarget, size: int, decided: int, limit: StatedReason | None) -> StatedReason:
    """The condition of a job before anything is changed."""
    now = member.facts.workers
    if limit is not None and now != decided:
        return limit
    if not now and not size:
        return StatedReason(Reason.WAITS, "others get more done with what there is")
    if now == size:
        return StatedReason(Reason.SET, f"has {now} workers")
    return StatedReason(Reason.PENDING, "its change is under way")
