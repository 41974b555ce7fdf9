"""Explanation of a job of a simulated cluster, from what its agent keeps: the newest decision in which it was.

Nobody has to run: the decision log, the policy beside it and the beliefs in the agent's state directory are read. Jobs
of a simulation have no names that people gave them; the newest decision says which there are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster_agent.errors import BadConfig, JobRefused
from cluster_agent.recording.last_decision import last_decision, policy_of, weighed_steps
from cluster_agent.recording.reasons import decision_facts, others_given, readable_state, room_for, step_facts
from policy_net.domain import SUSPENDED, Allocation
from policy_net.set_policy.reasons import reasons_of

_SHOWN_NAMES = 8


def explain_simulated(name: str, state_dir: Path) -> dict[str, Any]:
    """Why a job of the newest decision has what it has; the plain JSON values of a local job's answer.

    Args:
        name: the job's, as the log has it.
        state_dir: of the agent.

    Raises:
        BadConfig: no decision can be read there.
        JobRefused: the newest one was not about this job.
    """
    line = last_decision(state_dir) if state_dir.is_dir() else None
    state = None if line is None else readable_state(line)
    if line is None or state is None:
        raise BadConfig(f"setting state_dir: {state_dir} holds no decision that can be read; let the agent run first")
    job = next((job for job in state.jobs if job.job_id == name), None)
    if job is None:
        names = [job.job_id for job in state.jobs]
        more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
        known = f"it was about {', '.join(names[:_SHOWN_NAMES])}{more}" if names else "there was no job then"
        raise JobRefused(f"no job {name[:63]!r} in the newest decision, number {line['number']}: {known}")
    given = {other: Allocation(*size) for other, size in line["allocation"].items()}
    wanted = given.get(job.job_id, SUSPENDED)
    policy = policy_of(state_dir, line)
    steps = [] if policy is None else weighed_steps(policy, state)
    return {
        "name": job.job_id,
        "state": "waiting" if wanted == SUSPENDED else "running",
        "workers": wanted.workers,
        "ps": wanted.ps,
        "held": False,
        "ended": False,
        "decision": decision_facts(line, wanted, [] if policy is None else reasons_of(policy, state, job.job_id)),
        "steps": [step_facts(step) for step in steps if step.job_id == job.job_id],
        "others": others_given(state, given, job, steps),
        "waitsFor": room_for(job, given, state) if wanted == SUSPENDED else "",
    }
