"""Explanation of a target or a TrainingJob: what is recommended and why, what more would gain, who decided.

What an agent decided is read from its state where that is at hand; else the policy that ships with the package is
asked about the cluster as it is now, by the speeds that ship with it. Each answer says which it was. Progress of a
TrainingJob is read from its status, as only its agent may ask its coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cluster_agent.active_policy import CandidateFactory
from cluster_agent.backends.kubernetes.observation import Observed, targets_alone
from cluster_agent.backends.kubernetes.pools import within_pools
from cluster_agent.backends.kubernetes.training.measured import current_of, noted
from cluster_agent.backends.kubernetes.views import ClusterView
from cluster_agent.errors import StateDamaged
from cluster_agent.kubernetes.resources import dicts_in
from cluster_agent.kubernetes.targets import ElasticTarget, TargetFacts
from cluster_agent.kubernetes.targets import TargetUpdateMode as TargetMode
from cluster_agent.kubernetes.training.training_job import TRAINING_JOBS, JobUpdateMode, TrainingJob
from cluster_agent.recording.last_decision import WeighedDecision, weighed_decision, weighed_steps
from cluster_agent.recording.memory import MEMORY
from cluster_agent.recording.state_files import read_json
from cluster_agent.settings import PolicySettings
from policy_net.domain import SUSPENDED, Allocation, Job, JobKind, Resources, SpeedModel, Trigger
from policy_net.errors import BadInput
from policy_net.set_policy.beliefs import SetBeliefs
from policy_net.set_policy.policy import SetPolicy
from policy_net.throughput.beliefs import measured_kinds, type_of_kind
from policy_net.throughput.parametric import OnlineFit

SHIPPED = "set"


@dataclass(frozen=True, slots=True)
class Believed:
    """Speeds of one type, known as `job_type`, and whose they are, in words; without a scale they are only relative."""

    speeds: SpeedModel
    job_type: str
    source: str
    has_scale: bool

    def speed(self, size: Allocation) -> float:
        """Of a job of a size; 0 of one that has nothing."""
        if size == SUSPENDED:
            return 0.0
        return self.speeds.samples_per_second(self.job_type, size.ps, size.workers)


def explain(view: ClusterView, job_id: str, state_dir: Path | None, policy: str) -> dict[str, Any]:
    """Why a target or a TrainingJob has what it has; plain JSON values.

    Args:
        state_dir: of the agent, where its decisions and beliefs are; None where they are not at hand.
        policy: asked where no decision is at hand.
    """
    job, target = view.training_jobs.get(job_id), view.targets.get(job_id)
    notes = _notes_on(view)
    if target is not None and target.progress is not None and target.progress.endpoint is not None:
        notes.append("its progress is in its own metrics, which the agent reads, and this command does not")
    decision = _decision(view, job_id, state_dir, policy, notes)
    beliefs = None if decision is None or decision.policy is None else decision.policy.beliefs
    if job is not None:
        kind = JobKind.ALLREDUCE if job.is_all_reduce else JobKind.PS
        believed = believed_speeds(job.model_type, state_dir, beliefs, kind)
        own, status = _of_training_job(job, believed, decision), job.status
    else:
        target = view.targets[job_id]
        believed = believed_speeds(target.model_type, state_dir, beliefs)
        own, status = _of_target(view, target, job_id, believed, decision), target.status
    return {
        "name": job_id,
        **own,
        "conditions": _conditions_of(status),
        "recommendation": status.get("recommendation"),
        "allocation": status.get("allocation"),
        "decision": None if decision is None else decision.facts_of(job_id),
        "speedsFrom": believed.source,
        "others": [] if decision is None else decision.others(job_id),
        "notes": notes,
    }


def _notes_on(view: ClusterView) -> list[str]:
    """What is not known, and what is meant by what is."""
    notes = [
        f"you may not read {what} everywhere: what they have counts as taken by others"
        if what == TRAINING_JOBS.plural
        else f"you may not read {what} everywhere: what is free is not known"
        for what in view.unseen
    ]
    return [*notes, view.meaning_of_free] if view.meaning_of_free else notes


def _decision(
    view: ClusterView, job_id: str, state_dir: Path | None, policy: str, notes: list[str]
) -> WeighedDecision | None:
    """The agent's own decision about a job, else what a policy would decide now; None where neither is known."""
    if state_dir is not None:
        found = weighed_decision(state_dir)
        if found is not None and found.job(job_id) is not None:
            return replace(found, facts={**found.facts, "from": "log"})
        notes.append(f"no decision about it in {state_dir}: what {policy} would decide now is shown")
    is_observed = any(each.job_id == job_id for each in view.observed.state.jobs)
    return _decided_now(view.observed, policy) if is_observed and view.sees_free_capacity else None


def believed_speeds(
    job_type: str, state_dir: Path | None, beliefs: SetBeliefs | None = None, kind: JobKind = JobKind.ALLREDUCE
) -> Believed:
    """What is believed of a type: by the agent, as far as it has seen it, else what ships with the package.

    Args:
        beliefs: of the policy that decides; without, those of the agent's reward, which see as much.
        kind: of the job; what ships with the package is of one of them.
    """
    seen = beliefs if beliefs is not None or state_dir is None else measured_speeds(state_dir)
    if seen is not None:
        name = type_of_kind(job_type, kind, measured_kinds(seen))
        if seen.allocations_seen(name):
            return Believed(seen, name, f"what this agent has measured of {name}", has_scale=True)
    shipped = _shipped()
    assert shipped.beliefs is not None  # noqa: S101  (the policy that ships has some; narrows the type)
    shipped.beliefs.introduce([_of_type(job_type, kind)])
    if any(prior.job_type == job_type and bool(prior.ps) == (kind is JobKind.PS) for prior in shipped.priors):
        return Believed(shipped.beliefs, job_type, f"shipped priors of {job_type}", has_scale=True)
    return Believed(shipped.beliefs, job_type, f"shipped priors: nothing is known of {job_type}", has_scale=False)


def measured_speeds(state_dir: Path) -> OnlineFit | None:
    """What an agent has measured; None where it cannot be read."""
    fit = OnlineFit()
    try:
        saved = read_json(state_dir / MEMORY)
        if saved is None or not saved.get("beliefs"):
            return None
        fit.restore(saved["beliefs"])
    except (StateDamaged, BadInput, KeyError, TypeError, ValueError):
        return None
    return fit


def _of_type(job_type: str, kind: JobKind) -> Job:
    servers = Resources(1) if kind is JobKind.PS else Resources(0)
    return Job("", job_type, 0.0, Resources(1), servers, 1.0, 1.0, 1.0, kind=kind)


def _shipped() -> SetPolicy:
    policy = CandidateFactory(PolicySettings()).from_name_or_file(SHIPPED).policy
    assert isinstance(policy, SetPolicy)  # noqa: S101  (that is what ships; narrows the type)
    return policy


def _decided_now(about: Observed, name: str) -> WeighedDecision:
    """What a policy would decide now, by what ships with the package."""
    state = about.state
    candidate = CandidateFactory(PolicySettings()).from_name_or_file(name)
    decision = candidate.policy.decide(state, Trigger.SLOT)
    # As the backend does it: TrainingJobs get what was decided, targets what then fits where they can be.
    pooled = within_pools(state, decision, about.reach, about.ps_reach)
    given = dict(pooled.allocation)
    if len(about.members) < len(state.jobs):
        alone = targets_alone(about, pooled)
        rest = within_pools(alone.state, decision, alone.reach).allocation
        given |= {job.job_id: rest[job.job_id] for job in alone.state.jobs if job.job_id in rest}
    facts: dict[str, Any] = {
        "number": None,
        "unixSeconds": state.time_seconds,
        "trigger": Trigger.SLOT.value,
        "policy": candidate.identity.name,
        "version": candidate.identity.version,
        "guard": [],
        "reasons": [],
        "from": "now",
    }
    steps = weighed_steps(candidate.policy, state) if isinstance(candidate.policy, SetPolicy) else []
    return WeighedDecision(state, given, facts, steps)


def _of_target(
    view: ClusterView, target: ElasticTarget, job_id: str, believed: Believed, decision: WeighedDecision | None
) -> dict[str, Any]:
    facts = view.seen.found.get(target.object_key)
    member = view.observed.members.get(job_id)
    now = SUSPENDED if facts is None else Allocation(facts.workers)
    sizes = [Allocation(workers) for workers in range(target.least, target.most + 1)]
    return {
        "job": {"apiVersion": target.ref.api_version, "kind": target.ref.kind, "name": target.ref.name},
        "modelType": target.model_type,
        "updateMode": target.mode.value,
        "state": _state_of(view, job_id, facts),
        "workers": now.workers,
        "min": target.least,
        "max": target.most,
        "progress": None if member is None else _progress(member.samples, member.total_samples),
        "gains": _gains(job_id, sizes, now, believed, decision),
        "waitsFor": _target_waits_for(view, target, facts, decision, job_id),
    }


def _of_training_job(job: TrainingJob, believed: Believed, decision: WeighedDecision | None) -> dict[str, Any]:
    now = SUSPENDED if job.outcome else current_of(job, None)
    # A row for each number of workers beside the parameter servers that it has, and for each size that was weighed.
    servers = (now if now != SUSPENDED else job.least).ps
    sizes = {Allocation(workers, servers) for workers in range(job.least.workers, job.most.workers + 1)}
    sizes |= set() if decision is None else {step.target for step in decision.steps_of(job.job_id)}
    counted = noted(job)
    epochs = counted.total_epochs or job.epochs
    total = counted.samples_per_epoch * epochs if epochs and counted.samples_per_epoch else None
    return {
        "job": {"apiVersion": TRAINING_JOBS.api_version, "kind": TRAINING_JOBS.kind, "name": job.name},
        "modelType": job.model_type,
        "updateMode": job.mode.value,
        "state": str(job.status.get("phase") or "new").lower(),
        "workers": now.workers,
        "ps": now.ps,
        "min": job.least.workers,
        "max": job.most.workers,
        "minPs": job.least.ps,
        "maxPs": job.most.ps,
        "progress": _progress(counted.samples or None, total),
        "gains": _gains(job.job_id, sizes, now, believed, decision),
        "waitsFor": _training_waits_for(job, now, decision),
    }


def _state_of(view: ClusterView, job_id: str, facts: TargetFacts | None) -> str:
    if facts is None:
        return "without its job"
    if facts.is_over:
        return "over"
    if job_id in view.observed.left_out:
        return "not usable"
    if not facts.workers:
        return "suspended"
    waiting = _waiting_pods(view, facts)
    return "running" if not waiting else "waiting" if waiting >= facts.workers else "running in part"


def _waiting_pods(view: ClusterView, facts: TargetFacts) -> int:
    return sum(pod.owner == facts.uid and not pod.node for pod in view.seen.pods)


def _progress(samples: float | None, total: float | None) -> dict[str, Any] | None:
    return (
        None if samples is None else {"samples": samples, "total": total, "share": samples / total if total else None}
    )


def _conditions_of(status: dict[str, Any]) -> list[dict[str, str]]:
    return [
        {name: str(each.get(name) or "") for name in ("type", "status", "reason", "message")}
        for each in dicts_in(status.get("conditions"))
    ]


def _gains(
    job_id: str, sizes: Iterable[Allocation], now: Allocation, believed: Believed, decision: WeighedDecision | None
) -> list[dict[str, Any]]:
    """A row for each size: how fast it is believed to be, and what the policy made of it."""
    weighed = {} if decision is None else {step.target: step.to_json() for step in decision.steps_of(job_id)}
    base = believed.speed(now)
    rows = []
    for size in sorted(sizes, key=lambda each: (each.ps, each.workers)):
        speed = believed.speed(size)
        rows.append(
            {
                "workers": size.workers,
                "ps": size.ps,
                "samplesPerSecond": speed if believed.has_scale else None,
                "timesAsFastAsNow": speed / base if base > 0 else None,
                "step": weighed.get(size),
            }
        )
    return rows


def _target_waits_for(
    view: ClusterView, target: ElasticTarget, facts: TargetFacts | None, decision: WeighedDecision | None, job_id: str
) -> str:
    if target.problem or facts is None or facts.is_over or job_id in view.observed.left_out:
        return f"nothing: {view.observed.left_out.get(job_id, target.problem)}"
    waiting = _waiting_pods(view, facts)
    job = None if decision is None else decision.job(job_id)
    if decision is None or job is None:
        return f"room for {waiting} of its pods" if waiting else ""
    desired = decision.size_of(job_id).workers
    if not desired:
        return decision.capacity_for(job)
    if desired == facts.workers:
        return f"room for {waiting} of its pods, which kube-scheduler has placed nowhere yet" if waiting else ""
    if target.mode is TargetMode.OFF:
        return f"whoever sets its size: {desired} rather than {facts.workers}, as updateMode is Off"
    return f"its size to be set: {desired} rather than {facts.workers}"


def _training_waits_for(job: TrainingJob, now: Allocation, decision: WeighedDecision | None) -> str:
    accepted = job.condition("Accepted")
    without_capacity = [
        (bool(job.problem), f"nothing: {job.problem}"),
        (bool(job.outcome), f"nothing: it is {job.outcome}"),
        (job.deleting, "its end: it is being deleted"),
        (job.suspend, "its author: spec.suspend is true"),
        (accepted.get("status") == "False", f"its author: {accepted.get('message', '')}"),
    ]
    line = next((line for applies, line in without_capacity if applies), None)
    if line is not None:
        return line
    seen = None if decision is None else decision.job(job.job_id)
    if decision is None or seen is None:
        return str(job.status.get("message") or "")
    desired = decision.size_of(job.job_id)
    if job.mode is JobUpdateMode.OFF and desired != SUSPENDED:
        desired = job.least
    if desired == SUSPENDED:
        return decision.capacity_for(seen)
    if desired == now:
        return str(job.status.get("message") or "")
    return f"its size to be set: {_size(desired)} rather than {_size(now)}"


def _size(size: Allocation) -> str:
    return f"{size.workers} and {size.ps} PS" if size.ps else f"{size.workers}"
