"""Explanation of one job: what it has and why, what it waits for, who decided, and what the guard changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster_agent.backends.local.job_table import JobState
from cluster_agent.recording.last_decision import last_decision, policy_of, weighed_steps
from cluster_agent.recording.reasons import decision_facts, others_given, readable_state, room_for, step_facts
from policy_net.domain import SUSPENDED, Allocation, ClusterState, Job
from policy_net.set_policy.reasons import reasons_of


def explain(facts: Mapping[str, Any], state_dir: Path, lacks: str = "") -> dict[str, Any]:
    """Why a job has what it has; plain JSON values.

    Args:
        facts: of the job, as users see it.
        state_dir: of the agent, where its decisions are.
        lacks: why it has not got what it was given, in a line.
    """
    shown = ("name", "state", "stateSinceUnixSeconds", "workers", "ps", "held", "ended", "failures", "lastFailure")
    answer: dict[str, Any] = {key: facts[key] for key in shown}
    line = last_decision(state_dir)
    state = None if line is None else readable_state(line)
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
        "decision": decision_facts(line, wanted, [] if policy is None else reasons_of(policy, state, job.job_id)),
        "steps": [step_facts(step) for step in steps if step.job_id == job.job_id],
        "others": others_given(state, given, job, steps),
        "waitsFor": _without_decision(facts) or _waits_for(facts, job, wanted, given, state, lacks),
    }


def _without_decision(facts: Mapping[str, Any]) -> str:
    """What it waits for whatever was decided; empty if that has to be looked at."""
    if facts["ended"]:
        return f"nothing: it {JobState(facts['state']).ended_words}"
    if facts["cancelling"]:
        return "its end: it is being cancelled"
    if facts["held"]:
        return f"its user, who holds it: `cluster-agent resume {facts['name']}`"
    return ""


def _waits_for(
    facts: Mapping[str, Any],
    job: Job,
    wanted: Allocation,
    given: Mapping[str, Allocation],
    state: ClusterState,
    lacks: str,
) -> str:
    has = Allocation(facts["workers"], facts["ps"])
    if wanted == has:
        return "" if wanted != SUSPENDED else room_for(job, given, state)
    if wanted == SUSPENDED:
        return room_for(job, given, state)
    if has != SUSPENDED:
        return f"a resize to {_size(wanted)}" + (f": {lacks}" if lacks else ", which is under way")
    if facts["state"] in (JobState.QUEUED.value, JobState.SUSPENDED.value):
        return lacks or "what other jobs are about to give back"
    return "its processes, which are starting"


def _size(size: Allocation) -> str:
    return f"{size.workers} workers and {size.ps} parameter servers" if size.ps else f"{size.workers} workers"
