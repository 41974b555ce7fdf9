"""Reasons of a `set` policy for one job, in words: what its work was taken for, and in what prices it was weighed.

For people who ask why; what a step gains is told by the steps themselves (`SetPolicy.weighed`).
"""

from __future__ import annotations

import math

from foundation.figures import counted, duration
from policy_net.domain import ClusterState, Job
from policy_net.set_policy.beliefs import SetBeliefs
from policy_net.set_policy.policy import SetPolicy
from policy_net.set_policy.prices import contention_of
from policy_net.set_policy.steps import USUAL_PRICES

_TENTH = 10.0


def reasons_of(policy: SetPolicy, state: ClusterState, job_id: str) -> list[str]:
    """What counted for a job of this state beside the gains of its steps.

    Like a decision it introduces the jobs to the policy's beliefs.
    """
    job = next((job for job in state.jobs if job.job_id == job_id), None)
    if job is None:
        return []
    _, tables = policy.weighed(state)
    found = []
    if policy.beliefs is not None and not job.work_known:
        found.append(_work_of(policy.beliefs, job))
    if not policy.price_terms.usual:
        found += _prices_of(policy, contention_of(state, tables), job)
    return found


def _work_of(beliefs: SetBeliefs, job: Job) -> str:
    seconds = beliefs.expected_seconds(job)
    if seconds is None:
        return "nobody said how much work it is, and its speed is not known either"
    mates = beliefs.lifetimes.session_mates(job.job_id)
    head = "nobody said how much work it is; it counts as"
    if mates is None:
        return f"{head} {duration(seconds)} more, by how long such jobs took on this cluster"
    ended, going_on = mates
    of_them = f"of {counted(ended + going_on, 'job')} of its size submitted with it, {ended} ended"
    return f"{head} {duration(seconds)} more: {of_them}"


def _prices_of(policy: SetPolicy, contention: float, job: Job) -> list[str]:
    prices = policy.price_terms.at(contention)
    found = [
        f"jobs could use {math.exp(2.0 * contention):.2g} times what the cluster has; where it is so full, one with a"
        f" tenth of the work counts {_TENTH**prices.work_exponent:.2g} times as much (usually"
        f" {_TENTH**USUAL_PRICES.work_exponent:.2g})"
    ]
    if job.kind.uses_ps:
        found.append(f"a parameter server costs as much as {prices.ps_price:.2g} workers (usually 1)")
    return found
