"""Explanation of one job: what it has and why, what it waits for, who decided, and what the guard changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster_agent.backends.local.job_table import JobState
from cluster_agent.recording.last_decision import WeighedDecision, weighed_decision
from policy_net.domain import SUSPENDED, Allocation, Job


def explain(facts: Mapping[str, Any], state_dir: Path, lacks: str = "") -> dict[str, Any]:
    """Why a job has what it has; plain JSON values.

    Args:
        facts: of the job, as users see it.
        state_dir: of the agent, where its decisions are.
        lacks: why it has not got what it was given, in a line.
    """
    shown = ("name", "state", "stateSinceUnixSeconds", "workers", "ps", "held", "ended", "failures", "lastFailure")
    answer: dict[str, Any] = {key: facts[key] for key in shown}
    decision = weighed_decision(state_dir)
    job = None if decision is None else decision.job(facts["name"])
    waits = _without_decision(facts)
    if decision is None or job is None:
        waits = waits or "the next decision: it was not there at the last one"
        return {**answer, "decision": None, "steps": [], "others": [], "waitsFor": waits}
    return {**answer, **decision.answer(job.job_id), "waitsFor": waits or _waits_for(facts, job, decision, lacks)}


def _without_decision(facts: Mapping[str, Any]) -> str:
    """What it waits for whatever was decided; empty if that has to be looked at."""
    if facts["ended"]:
        return f"nothing: it {JobState(facts['state']).ended_words}"
    if facts["cancelling"]:
        return "its end: it is being cancelled"
    if facts["held"]:
        return f"its user, who holds it: `cluster-agent resume {facts['name']}`"
    return ""


def _waits_for(facts: Mapping[str, Any], job: Job, decision: WeighedDecision, lacks: str) -> str:
    has, wanted = Allocation(facts["workers"], facts["ps"]), decision.size_of(job.job_id)
    if wanted == SUSPENDED:
        return decision.capacity_for(job)
    if wanted == has:
        return ""
    if has != SUSPENDED:
        return f"a resize to {_size(wanted)}" + (f": {lacks}" if lacks else ", which is under way")
    if facts["state"] in (JobState.QUEUED.value, JobState.SUSPENDED.value):
        return lacks or "what other jobs are about to give back"
    return "its processes, which are starting"


def _size(size: Allocation) -> str:
    return f"{size.workers} workers and {size.ps} parameter servers" if size.ps else f"{size.workers} workers"
