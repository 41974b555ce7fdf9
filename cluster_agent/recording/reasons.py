"""Reasons of a logged decision, as plain JSON values: what it gave a job, by whom, and what there was room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster_agent.errors import StateDamaged
from cluster_agent.recording.last_decision import WeighedStep, decided_state, last_decision
from foundation.figures import counted
from policy_net.domain import SUSPENDED, Allocation, ClusterState, Job, Resources
from policy_net.exchange.state_codec import JsonObject

_MOST_OTHERS = 8


def readable_state(line: JsonObject) -> ClusterState | None:
    """What a decision was about; None where its line was changed."""
    try:
        return decided_state(line)
    except StateDamaged:
        return None


def asked_about(state_dir: Path) -> frozenset[tuple[str, float]]:
    """The jobs of the newest logged decision: their ids, and when they were submitted."""
    line = last_decision(state_dir)
    state = None if line is None else readable_state(line)
    return frozenset() if state is None else frozenset((job.job_id, job.submit_time_seconds) for job in state.jobs)


def decision_facts(line: JsonObject, wanted: Allocation, reasons: Sequence[str] = ()) -> dict[str, Any]:
    """A logged decision as a job's owner is told of it.

    Args:
        wanted: what it gave the job.
        reasons: of the policy, for this job.
    """
    return {
        "number": line["number"],
        "unixSeconds": line["wall_time_seconds"],
        "trigger": line["trigger"],
        "policy": line["policy"],
        "version": line["version"],
        "workers": wanted.workers,
        "ps": wanted.ps,
        "guard": line["interventions"],
        "reasons": [*reasons, *line["reasons"]],
    }


def room_for(job: Job, given: Mapping[str, Allocation], state: ClusterState) -> str:
    """What a job waits for that was given nothing."""
    taken = Resources(0)
    for other in state.jobs:
        size = given.get(other.job_id, SUSPENDED)
        taken += other.worker_demand * size.workers + other.ps_demand * size.ps
    least = job.worker_demand * max(job.min_workers, 1) + job.ps_demand * job.min_ps
    total = state.total
    free = f"{_cores(total.cpu_milli - taken.cpu_milli)} of {cores(total.cpu_milli)}"
    if total.gpu:
        free += f" and {total.gpu - taken.gpu} of {counted(total.gpu, 'GPU')}"
    needs = cores(least.cpu_milli) + (f" and {counted(least.gpu, 'GPU')}" if least.gpu else "")
    if (taken + least).fits_in(total):
        return f"the policy, which gave it nothing though {free} are free and it needs {needs}"
    return f"room: it needs at least {needs}, and {free} are free"


def others_given(
    state: ClusterState, given: Mapping[str, Allocation], job: Job, steps: Sequence[WeighedStep]
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


def step_facts(step: WeighedStep) -> dict[str, Any]:
    """A step that was weighed."""
    return {
        "workers": step.target.workers,
        "ps": step.target.ps,
        "samplesPerSecond": step.speed,
        "timesAsFast": step.times or None,
        "score": step.score,
        "taken": step.taken,
        "rank": step.rank,
    }


def _cores(milli: int) -> str:
    return f"{milli / 1000:g}"


def cores(milli: int) -> str:
    """So many cores: 1 core, 0.5 cores."""
    return f"{_cores(milli)} core" + "s" * (milli != 1000)
