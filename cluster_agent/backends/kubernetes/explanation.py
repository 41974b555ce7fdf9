"""Explanation of one target: what is recommended and why, what more would gain, what it waits for, who decided.

What an agent decided is read from its state where that is at hand. Otherwise the policy that ships with the package is
asked about the cluster as it is now, by the speeds that ship with it; each answer says which it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster_agent.acting.active_policy import CandidateFactory
from cluster_agent.backends.kubernetes.observation import Member, Observed, targets_alone
from cluster_agent.backends.kubernetes.pools import within_pools
from cluster_agent.backends.kubernetes.views import ClusterView
from cluster_agent.errors import StateDamaged
from cluster_agent.kubernetes.targets.elastic_target import ElasticTarget, UpdateMode
from cluster_agent.kubernetes.targets.target_kind import TargetFacts
from cluster_agent.kubernetes.training.training_job import TRAINING_JOBS
from cluster_agent.recording.last_decision import WeighedStep, last_decision, policy_of, weighed_steps
from cluster_agent.recording.memory import MEMORY
from cluster_agent.recording.reasons import decision_facts, others_given, readable_state, room_for, step_facts
from cluster_agent.recording.state_files import read_json
from cluster_agent.settings import PolicySettings
from policy_net.domain import SUSPENDED, Allocation, ClusterState, Job, JobKind, Resources, SpeedModel, Trigger
from policy_net.errors import BadInput
from policy_net.exchange.state_codec import JsonObject
from policy_net.set_policy.beliefs import SetBeliefs
from policy_net.set_policy.policy import SetPolicy
from policy_net.set_policy.reasons import reasons_of
from policy_net.throughput.kinds_apart import measured_kinds, type_of_kind
from policy_net.throughput.parametric import OnlineFit

SHIPPED = "set"


@dataclass(frozen=True, slots=True)
class Believed:
    """Speeds of one type, and whose they are.

    Attributes:
        job_type: the name under which they are known.
        source: in words.
        has_scale: whether samples a second are known; else speeds say no more than how they relate.
    """

    speeds: SpeedModel
    job_type: str
    source: str
    has_scale: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """A decision that a job was in, and what was weighed for it."""

    state: ClusterState
    given: dict[str, Allocation]
    steps: list[WeighedStep]
    facts: dict[str, Any]
    beliefs: SetBeliefs | None = None


def explain(
    view: ClusterView, job_id: str, state_dir: Path | None, policy: str, events: list[dict[str, Any]]
) -> dict[str, Any]:
    """Why a target has what it has; plain JSON values.

    Args:
        job_id: namespace and name of a target that is there.
        state_dir: of the agent, where its decisions and beliefs are; None where they are not at hand.
        policy: asked where no decision is at hand.
    """
    target, member = view.targets[job_id], view.observed.members.get(job_id)
    facts = view.seen.found.get((target.ref.kind, target.namespace, target.ref.name))
    notes = notes_on(view)
    if target.progress is not None and target.progress.endpoint is not None:
        notes.append("its progress is in its own metrics, which the agent reads, and this command does not")
    answer = answer_of(view, job_id, state_dir, policy, notes, is_asked=member is not None)
    beliefs = None if answer is None or state_dir is None else answer.beliefs
    believed = believed_speeds(target.model_type, state_dir, beliefs)
    now = 0 if facts is None else facts.workers
    return {
        "name": job_id,
        "job": {"apiVersion": target.ref.api_version, "kind": target.ref.kind, "name": target.ref.name},
        "modelType": target.model_type,
        "updateMode": target.mode.value,
        "state": _state_of(view, job_id, facts),
        "workers": now,
        "min": target.least,
        "max": target.most,
        "progress": None if member is None else _progress(member),
        "conditions": conditions_of(target.status),
        "recommendation": target.status.get("recommendation"),
        "allocation": target.status.get("allocation"),
        "decision": None if answer is None else decision_of(answer, job_id),
        "gains": _gains(target, now, believed, [] if answer is None else answer.steps, job_id),
        "speedsFrom": believed.source,
        "others": [] if answer is None else others_of(answer, job_id),
        "waitsFor": _waits_for(view, target, facts, answer, job_id),
        "events": events,
        "notes": notes,
    }


def notes_on(view: ClusterView) -> list[str]:
    """What is not known, and what is meant by what is."""
    notes = [
        f"you may not read {what} everywhere: what they have counts as taken by others"
        if what == TRAINING_JOBS.plural
        else f"you may not read {what} everywhere: what is free is not known"
        for what in view.unseen
    ]
    return [*notes, view.meaning_of_free] if view.meaning_of_free else notes


def answer_of(
    view: ClusterView, job_id: str, state_dir: Path | None, policy: str, notes: list[str], *, is_asked: bool
) -> Answer | None:
    """The agent's own decision about a job, else what a policy would decide now; None where neither is known.

    Args:
        policy: asked where no decision is at hand.
        notes: to which is added where an answer is from.
        is_asked: whether a decision would be about this job now.
    """
    answer = None
    if state_dir is not None:
        answer = _logged(state_dir, job_id)
        if answer is None:
            notes.append(f"no decision about it in {state_dir}: what {policy} would decide now is shown")
    if answer is None and is_asked and view.sees_room:
        answer = _asked_now(view.observed, policy)
    return answer


def believed_speeds(
    job_type: str, state_dir: Path | None, beliefs: SetBeliefs | None = None, kind: JobKind = JobKind.ALLREDUCE
) -> Believed:
    """What is believed of a type: by the agent, as far as it has seen it, else what ships with the package.

    Args:
        beliefs: of the policy that decides; without, those of the agent's reward count, which see as much.
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


def _logged(state_dir: Path, job_id: str) -> Answer | None:
    line: JsonObject | None = last_decision(state_dir)
    state = None if line is None else readable_state(line)
    if line is None or state is None or all(job.job_id != job_id for job in state.jobs):
        return None
    given = {name: Allocation(*size) for name, size in line["allocation"].items()}
    policy = policy_of(state_dir, line)
    steps = [] if policy is None else weighed_steps(policy, state)
    reasons = [] if policy is None else reasons_of(policy, state, job_id)
    facts = decision_facts(line, given.get(job_id, SUSPENDED), reasons) | {"from": "log"}
    return Answer(state, given, steps, facts, None if policy is None else policy.beliefs)


def _asked_now(about: Observed, name: str) -> Answer:
    """What a policy would decide now, by what ships with the package."""
    state = about.state
    candidate = CandidateFactory(PolicySettings()).from_name_or_file(name)
    decision = candidate.policy.decide(state, Trigger.SLOT)
    # As the backend does it: TrainingJobs get what was decided, targets what then fits where they can be.
    held = within_pools(state, decision, about.reach, about.ps_reach)
    given = dict(held.allocation)
    if len(about.members) < len(state.jobs):
        alone = targets_alone(about, held)
        rest = within_pools(alone.state, decision, alone.reach).allocation
        given |= {job.job_id: rest[job.job_id] for job in alone.state.jobs if job.job_id in rest}
    steps = weighed_steps(candidate.policy, state) if isinstance(candidate.policy, SetPolicy) else []
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
    return Answer(state, given, steps, facts)


def decision_of(answer: Answer, job_id: str) -> dict[str, Any]:
    """What was decided of a job, and by whom."""
    given = answer.given.get(job_id, SUSPENDED)
    return answer.facts | {"workers": given.workers, "ps": given.ps}


def others_of(answer: Answer, job_id: str) -> list[dict[str, Any]]:
    """What others were given."""
    job = next(job for job in answer.state.jobs if job.job_id == job_id)
    return others_given(answer.state, answer.given, job, answer.steps)


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


def _progress(member: Member) -> dict[str, Any] | None:
    if member.samples is None:
        return None
    total = member.total_samples
    share = member.samples / total if total else None
    return {"samples": member.samples, "total": total, "share": share}


def conditions_of(status: dict[str, Any]) -> list[dict[str, str]]:
    """The conditions of a status, as far as they are some."""
    found = status.get("conditions")
    return [
        {name: str(each.get(name) or "") for name in ("type", "status", "reason", "message")}
        for each in (found if isinstance(found, list) else ())
        if isinstance(each, dict)
    ]


def _gains(
    target: ElasticTarget, now: int, believed: Believed, steps: list[WeighedStep], job_id: str
) -> list[dict[str, Any]]:
    """A row for each size that it may have: how fast it is believed to be, and what the policy made of it."""
    weighed = {step.target.workers: step for step in steps if step.job_id == job_id}
    speeds = [believed.speeds.samples_per_second(believed.job_type, 0, size) for size in range(target.most + 1)]
    base = speeds[now] if 0 < now <= target.most else 0.0
    rows = []
    for size in range(target.least, target.most + 1):
        step = weighed.get(size)
        rows.append(
            {
                "workers": size,
                "samplesPerSecond": speeds[size] if believed.has_scale else None,
                "timesAsFastAsNow": speeds[size] / base if base > 0 else None,
                "step": None if step is None else step_facts(step),
            }
        )
    return rows


def _waits_for(
    view: ClusterView, target: ElasticTarget, facts: TargetFacts | None, answer: Answer | None, job_id: str
) -> str:
    if target.problem or facts is None or facts.is_over or job_id in view.observed.left_out:
        return f"nothing: {view.observed.left_out.get(job_id, target.problem)}"
    waiting = _waiting_pods(view, facts)
    if answer is None:
        return f"room for {waiting} of its pods" if waiting else ""
    job = next(job for job in answer.state.jobs if job.job_id == job_id)
    wanted = answer.given.get(job_id, SUSPENDED).workers
    if not wanted:
        return room_for(job, answer.given, answer.state)
    if wanted == facts.workers:
        return f"room for {waiting} of its pods, which kube-scheduler has placed nowhere yet" if waiting else ""
    if target.mode is UpdateMode.OFF:
        return f"whoever sets its size: {wanted} rather than {facts.workers}, as updateMode is Off"
    return f"its size to be set: {wanted} rather than {facts.workers}"
