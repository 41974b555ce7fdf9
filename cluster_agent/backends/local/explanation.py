"""Explanation of one job: what it has and why, what it waits for, who decided, and what the guard changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster_agent.errors import StateDamaged
from cluster_agent.recording.last_decision import WeighedStep, decided_state, last_decision, policy_of, weighed_steps
from policy_net.domain import SUSPENDED, Allocation, ClusterState, Job, Resources
from policy_net.exchange.state_codec import JsonObject

_MOST_OTHERS = 8


def explain(facts: Mapping[str, Any], state_dir: Path) -> dict[str, Any]:
    """Why a job has what it has; plain JSON values.

    Args:
        facts: of the job, as users see it.
        state_dir: of the agent, where its decisions are.
    """
    answer: dict[str, Any] = {key: facts[key] for key in ("name", "state", "workers", "ps", "held", "ended")}
    line = last_decision(state_dir)
    state = None if line is None else _state(line)
    job = None if state is None else next((job for job in state.jobs if job.job_id == facts["name"]), None)
    if line is None or state is None or job is None:
        waits = _without_decision(facts) or "the next decision: it was not there at the last one"
        return {**answer, "decision": None, "steps": [], "others": [], "waitsFor": waits}
    given = {name: Allocation(*size) for name, size in line["allocation"].items()}
    wanted = given.get(job.job_id, SUSPENDED)
    policy = policy_of(state_dir, line)
    steps = [] if policy is None else weighed_steps(policy, state)
    return {
        **answer,
        "decision": {
            "number": line["number"],
            "unixSeconds": line["wall_time_seconds"],
            "trigger": line["trigger"],
            "policy": line["policy"],
            "version": line["version"],
            "workers": wanted.workers,
            "ps": wanted.ps,
            "guard": line["interventions"],
            "reasons": line["reasons"],
        },
        "steps": [_step(step) for step in steps if step.job_id == job.job_id],
        "others": _others(state, given, job, steps),
        "waitsFor": _without_decision(facts) or _waits_for(facts, job, wanted, given, state),
    }


def _state(line: JsonObject) -> ClusterState | None:
    try:
        return decided_state(line)
    except StateDamaged:
        return None


def _without_decision(facts: Mapping[str, Any]) -> str:
    """What it waits for whatever was decided; empty if that has to be looked at."""
    if facts["ended"]:
        return f"nothing: it is {facts['state']}"
    if facts["cancelling"]:
        return "its end: it is being cancelled"
    if facts["held"]:
        return f"its user, who holds it: `cluster-agent resume {facts['name']}`"
    return ""


def _waits_for(
    facts: Mapping[str, Any], job: Job, wanted: Allocation, given: Mapping[str, Allocation], state: ClusterState
) -> str:
    has = Allocation(facts["workers"], facts["ps"])
    if wanted == has:
        return "" if wanted != SUSPENDED else _for_room(job, given, state)
    if wanted == SUSPENDED:
        return _for_room(job, given, state)
    if has == SUSPENDED:
        return "its processes, which are starting"
    return f"a resize to {_size(wanted)}, which is under way"


def _for_room(job: Job, given: Mapping[str, Allocation], state: ClusterState) -> str:
    """Of a job that was given nothing."""
    taken = Resources(0)
    for other in state.jobs:
        size = given.get(other.job_id, SUSPENDED)
        taken += other.worker_demand * size.workers + other.ps_demand * size.ps
    least = job.worker_demand * max(job.min_workers, 1) + job.ps_demand * job.min_ps
    total = state.total
    free = f"{_cores(total.cpu_milli - taken.cpu_milli)} of {_cores(total.cpu_milli)} cores"
    if total.gpu:
        free += f" and {total.gpu - taken.gpu} of {total.gpu} GPUs"
    needs = f"{_cores(least.cpu_milli)} cores" + (f" and {least.gpu} GPUs" if least.gpu else "")
    if (taken + least).fits_in(total):
        return f"the policy, which gave it nothing though {free} are free and it needs {needs}"
    return f"room: it needs at least {needs}, and {free} are free"


def _others(
    state: ClusterState, given: Mapping[str, Allocation], job: Job, steps: list[WeighedStep]
) -> list[dict[str, Any]]:
    """The jobs that were given something, those first whose first step came before any of this job's."""
    first: dict[str, float] = {}
    for step in steps:
        first.setdefault(step.job_id, step.score)
    with_something: list[dict[str, Any]] = [
        {
            "name": other.job_id,
            "workers": given[other.job_id].workers,
            "ps": given[other.job_id].ps,
            "score": first.get(other.job_id),
        }
        for other in state.jobs
        if other.job_id != job.job_id and given.get(other.job_id, SUSPENDED) != SUSPENDED
    ]
    return sorted(with_something, key=lambda row: -(row["score"] or 0.0))[:_MOST_OTHERS]


def _step(step: WeighedStep) -> dict[str, Any]:
    return {
        "workers": step.target.workers,
        "ps": step.target.ps,
        "samplesPerSecond": step.speed,
        "timesAsFast": step.times or None,
        "score": step.score,
        "taken": step.taken,
        "rank": step.rank,
    }


def _size(size: Allocation) -> str:
    return f"{size.workers} workers and {size.ps} parameter servers" if size.ps else f"{size.workers} workers"


def _cores(milli: int) -> str:
    return f"{milli / 1000:g}"
