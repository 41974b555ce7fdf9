"""The guard between policy and cluster: whatever a policy does, the cluster gets a decision that it can carry out.

A decision is clamped where most of it can be kept (an unknown job, a broken cap, more than the cluster has), and the
fallback's stands in its place where nothing of it can be trusted (an exception, NaN, a missed deadline; jobs for which
the policy was never taught), no job would train at all, or it surprises the monitor. Every intervention is counted by
its reason; the decision must not train the actor, which did not take it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

import structlog

from policy_net.domain import SUSPENDED, Allocation, ClusterState, Decision, Job, JobKind, Resources, Trigger
from policy_net.exchange.state_codec import encode_decision
from policy_net.placement.capacity import open_capacity
from policy_net.policy import Samples, SchedulerPolicy

_log = structlog.get_logger()


class Intervention(StrEnum):
    """Why a decision is not the policy's own; the words of the log, the metric and the heartbeat."""

    NOT_FINITE = "nan"
    EXCEPTION = "exception"
    DEADLINE = "deadline"
    MALFORMED = "malformed"
    IDLE = "idle"
    UNTAUGHT = "untaught"
    UNKNOWN_JOB = "unknown-job"
    OVER_CAP = "over-cap"
    OVER_CAPACITY = "over-capacity"
    EXCEPTIONAL = "exceptional"
    FALLBACK_FAILED = "fallback-failed"


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a policy answered: a decision or an exception, and its samples; it is not `asked` while it is busy.

    `untaught` says what the policy was never taught of the state (`TaughtJobs.lacking`); empty if it was all of it.
    """

    decision: Decision | None
    samples: Samples | None
    seconds: float
    error: Exception | None = None
    asked: bool = True
    untaught: str = ""


@dataclass(frozen=True, slots=True)
class GuardedDecision:
    """A decision that the cluster can carry out; without `interventions` it is exactly the policy's."""

    decision: Decision
    samples: Samples | None
    interventions: tuple[Intervention, ...]
    decide_seconds: float
    detail: str = ""
    asked: bool = True

    @property
    def trainable(self) -> bool:
        """Whether the actor may learn from it."""
        return not self.interventions and self.samples is not None


@dataclass(frozen=True, slots=True)
class ChallengerDecision:
    """What a challenger would have done.

    `decision` is as the guard would have let it through, None where the fallback would have decided; `answered` says
    whether the challenger gave any decision in time.
    """

    decision: Decision | None
    interventions: tuple[Intervention, ...]
    asked: bool
    answered: bool
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """For the decision log."""
        made = {"allocation": None, "placement": None} if self.decision is None else encode_decision(self.decision)
        return {
            "asked": self.asked,
            "interventions": [intervention.value for intervention in self.interventions],
            "decide_seconds": self.seconds,
            "allocation": made["allocation"],
            "placement": made["placement"],
        }


@dataclass(frozen=True, slots=True)
class _Judged:
    """A proposal, clamped; `decision` is None, and `reason` says why, where nothing of it can be used."""

    decision: Decision | None
    clamped: tuple[Intervention, ...]
    reason: Intervention | None = None
    detail: str = ""


class Monitor(Protocol):
    """What finds decisions exceptional (`monitor.py`)."""

    def surprise(self, decision: Decision, state: ClusterState, kind: str, *, acts: bool = True) -> str:
        """Why a decision of this kind of policy is exceptional; empty if it is not."""
        ...


class Guard:
    """Checks every decision; holds the counts, and the fallback, which decides in a faulty policy's place."""

    def __init__(
        self,
        fallback: SchedulerPolicy,
        deadline_seconds: float,
        counts: Mapping[str, int] | None = None,
        monitor: Monitor | None = None,
    ) -> None:
        """Guard with a fallback; `counts` are those of an earlier life of the same agent."""
        self.fallback = fallback
        self.deadline_seconds = deadline_seconds
        self.monitor = monitor
        self._counts: Counter[str] = Counter(counts or {})
        self._monitor_failures: set[str] = set()

    @property
    def counts(self) -> Mapping[str, int]:
        """Interventions so far, by reason."""
        return dict(self._counts)

    def decide(self, proposal: Proposal, state: ClusterState, trigger: Trigger, kind: str = "") -> GuardedDecision:
        """The policy's decision where it can be carried out, clamped or replaced where not.

        Args:
            kind: of the policy, as its file says it; empty for heuristics.
        """
        judged = self._judged(proposal, state, kind, acts=True)
        decision, clamped, reason, detail = judged.decision, judged.clamped, judged.reason, judged.detail
        if decision is not None:
            done, interventions, detail = "clamped", clamped, ", ".join(clamped)
        else:
            assert reason is not None  # noqa: S101  (why there is no decision)
            decision, failed = self._fall_back(state, trigger)
            done, interventions = "fallback", (*clamped, reason, *failed)
        if interventions:
            self._counts.update(intervention.value for intervention in interventions)
            reasons = (*decision.reasons, *(f"{done}:{intervention.value}" for intervention in interventions))
            decision = replace(decision, reasons=reasons)
        return GuardedDecision(decision, proposal.samples, interventions, proposal.seconds, detail, proposal.asked)

    def judge_challenger(self, proposal: Proposal, state: ClusterState, kind: str = "") -> ChallengerDecision:
        """The decision that a challenger's proposal would have led to; nothing is counted."""
        judged = self._judged(proposal, state, kind, acts=False)
        interventions = judged.clamped if judged.reason is None else (*judged.clamped, judged.reason)
        answered = proposal.decision is not None and Intervention.DEADLINE not in interventions
        return ChallengerDecision(judged.decision, interventions, proposal.asked, answered, proposal.seconds)

    def _judged(self, proposal: Proposal, state: ClusterState, kind: str, *, acts: bool) -> _Judged:
        reason, detail = self._distrust(proposal)
        if reason is not None or proposal.decision is None:
            return _Judged(None, (), reason, detail)
        if proposal.untaught:
            return _Judged(None, (), Intervention.UNTAUGHT, f"{proposal.untaught}: {self.fallback.name} decides")
        decision, clamped = clamp(proposal.decision, state)
        if state.jobs and not _anything_trains(decision, state):
            return _Judged(None, tuple(clamped), Intervention.IDLE, "no job would train")
        surprise = self._surprise(decision, state, kind, acts=acts)
        if surprise:
            return _Judged(None, tuple(clamped), Intervention.EXCEPTIONAL, surprise)
        return _Judged(decision, tuple(clamped))

    def _surprise(self, decision: Decision, state: ClusterState, kind: str, *, acts: bool) -> str:
        """What the monitor says; a fault of its own is logged once a kind of error, and surprises nobody."""
        if self.monitor is None:
            return ""
        try:
            return self.monitor.surprise(decision, state, kind, acts=acts)
        except Exception as error:  # it judges decisions that can be carried out; none waits for it
            reason = type(error).__name__
            if reason not in self._monitor_failures:
                self._monitor_failures.add(reason)
                _log.warning("monitor-failed", reason=reason, detail=str(error))
            return ""

    def _distrust(self, proposal: Proposal) -> tuple[Intervention | None, str]:
        """Why nothing of the proposal can be used; None if it can."""
        if isinstance(proposal.error, FloatingPointError):
            return Intervention.NOT_FINITE, str(proposal.error)
        if isinstance(proposal.error, TimeoutError) or proposal.seconds > self.deadline_seconds:
            late = f"{proposal.seconds:.3f} s, allowed are {self.deadline_seconds:.3f} s"
            return Intervention.DEADLINE, late if proposal.asked else f"not asked: {proposal.error}"
        if proposal.error is not None:
            return Intervention.EXCEPTION, f"{type(proposal.error).__name__}: {proposal.error}"
        samples = proposal.samples
        if samples is not None and not samples.finite:
            return Intervention.NOT_FINITE, "a feature or a behaviour probability is not finite"
        if proposal.decision is None or not _well_formed(proposal.decision):
            return Intervention.MALFORMED, "task counts must be whole numbers of at least 0"
        return None, ""

    def _fall_back(self, state: ClusterState, trigger: Trigger) -> tuple[Decision, tuple[Intervention, ...]]:
        """The fallback's decision; the jobs' running sizes if even that fails, since that is known to fit."""
        try:
            decision, clamped = clamp(self.fallback.decide(state, trigger), state)
        except Exception:  # the last line of defence: a cluster that keeps what it has beats one that stands still
            running, _ = clamp(Decision({job.job_id: job.current for job in state.jobs}), state)
            return running, (Intervention.FALLBACK_FAILED,)
        return decision, tuple(clamped)


def clamp(decision: Decision, state: ClusterState) -> tuple[Decision, list[Intervention]]:
    """The nearest decision that names known jobs only, keeps their caps and fits the cluster, and what was wrong.

    A decision that fits comes back as it is, the same object. One that does not loses its placement with the rest.
    """
    jobs = {job.job_id: job for job in state.jobs}
    wrong: list[Intervention] = []
    known = {job_id: grant for job_id, grant in decision.allocation.items() if job_id in jobs}
    if len(known) < len(decision.allocation):
        wrong.append(Intervention.UNKNOWN_JOB)
    capped = {
        job_id: Allocation(min(grant.workers, jobs[job_id].max_workers), min(grant.ps, jobs[job_id].max_ps))
        for job_id, grant in known.items()
    }
    if capped != known:
        wrong.append(Intervention.OVER_CAP)
    ordered = [(job, capped[job.job_id]) for job in state.jobs if job.job_id in capped]
    allocation = capped
    if not _fit(ordered, state):
        allocation = _filled(ordered, state)
        wrong.append(Intervention.OVER_CAPACITY)
    if not wrong:
        return decision, wrong
    return replace(decision, allocation=allocation, placement=None), wrong


def _demands(job: Job, grant: Allocation) -> list[Resources]:
    return [job.worker_demand] * grant.workers + [job.ps_demand] * grant.ps


def _fit(desired: list[tuple[Job, Allocation]], state: ClusterState) -> bool:
    """Whether all of it can be had together, on the nodes that it would really be placed on."""
    return open_capacity(state).fits(*(demand for job, grant in desired for demand in _demands(job, grant)))


def _filled(desired: list[tuple[Job, Allocation]], state: ClusterState) -> dict[str, Allocation]:
    """What each job gets, in order of arrival, when there is not enough; never one half of a pair alone."""
    capacity = open_capacity(state)
    filled: dict[str, Allocation] = {}
    for job, grant in desired:
        given = SUSPENDED
        for step in _steps(grant):
            demands = _demands(job, step)
            if not capacity.fits(*demands):
                break
            capacity.take(*demands)
            given = Allocation(given.workers + step.workers, given.ps + step.ps)
        filled[job.job_id] = given
    return filled


def _steps(grant: Allocation) -> list[Allocation]:
    """A grant as pairs first and then what is left of one role."""
    pairs = min(grant.workers, grant.ps)
    workers = [Allocation(1, 0)] * (grant.workers - pairs)
    servers = [Allocation(0, 1)] * (grant.ps - pairs)
    return [Allocation(1, 1)] * pairs + workers + servers


def _anything_trains(decision: Decision, state: ClusterState) -> bool:
    """Whether some job makes progress; a policy that lets a whole cluster stand still would never see a job done."""
    grants = ((job, decision.of(job.job_id)) for job in state.jobs)
    return any(grant.workers > 0 and (grant.ps > 0 or job.kind is JobKind.ALLREDUCE) for job, grant in grants)


def _well_formed(decision: Decision) -> bool:
    return all(
        type(count) is int and count >= 0
        for grant in decision.allocation.values()
        for count in (grant.workers, grant.ps)
    )
