"""Reasons of a `set` policy for one job, in words: its expected work, its prices, its size and its placement.

Gains of steps come from the steps themselves (`SetPolicy.weighed`).
"""

from __future__ import annotations

import math

from foundation.figures import counted, duration
from policy_net.domain import SUSPENDED, Allocation, ClusterState, Decision, Job, Share
from policy_net.set_policy.beliefs import SetBeliefs
from policy_net.set_policy.places import PlaceView, loss_apart
from policy_net.set_policy.policy import SetPolicy
from policy_net.set_policy.steps import NO_COST, USUAL_PRICES, ResizeCost, contention_of

_TENTH = 10.0


def reasons_of(policy: SetPolicy, state: ClusterState, job_id: str) -> list[str]:
    """What counted for a job of this state beside the gains of its steps."""
    job = next((job for job in state.jobs if job.job_id == job_id), None)
    if job is None:
        return []
    _, tables = policy.weighed(state)
    found: list[str] = []
    if policy.beliefs is not None and not job.work_known:
        found.append(_work_of(policy.beliefs, job))
    if not policy.price_terms.usual:
        found += _prices_of(policy, contention_of(state, tables), job)
    found += _size_of(policy, state, job)
    in_places = policy.planned_in_places(state)
    if in_places is not None:
        found += _places_of(*in_places, job)
    return found


def _size_of(policy: SetPolicy, state: ClusterState, job: Job) -> list[str]:
    """Why a job keeps its size, where it would have another one if resizes cost nothing."""
    cost = policy.resize_cost
    if cost.seconds <= 0.0 or not job.current.workers or _planned(policy, state, job, cost) != job.current:
        return []
    other = _planned(policy, state, job, NO_COST)
    if other == job.current:
        return []
    size = counted(other.workers, "worker")
    if job.kind.uses_ps:
        size += f" and {counted(other.ps, 'parameter server')}"
    return [
        f"it keeps its size: if resizes cost nothing, it would have {size}, but here a resize stops a job for"
        f" {duration(cost.seconds)}, and a size lasts {duration(cost.interval_seconds)} at the mean"
    ]


def _planned(policy: SetPolicy, state: ClusterState, job: Job, cost: ResizeCost) -> Allocation:
    index = next(number for number, each in enumerate(state.jobs) if each.job_id == job.job_id)
    taken = [step.size for step in policy.weighed(state, cost)[0] if step.job == index and step.taken]
    return taken[-1] if taken else SUSPENDED


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


def _places_of(view: PlaceView, decision: Decision, job: Job) -> list[str]:
    """Why a job is on this GPU type, and why its workers lie together or apart."""
    shares = (decision.placement or {}).get(job.job_id, ())
    nodes = [share.node_id for share in shares if share.allocation.workers]
    pool = next((number for number, each in enumerate(view.pools) if nodes and nodes[0] in each.gpu_types), None)
    if pool is None:
        return []
    found = []
    size = decision.of(job.job_id)
    index = next(number for number, each in enumerate(view.state.jobs) if each.job_id == job.job_id)
    if len(view.pools) > 1 and view.home_of(job) is not None:
        found.append(f"it keeps to {_named(view.pools[pool].name)} while it runs: this cluster moves no tasks")
    speed = view.tables[pool][index].speed(size)
    for number, other in enumerate(view.pools):
        there = view.tables[number][index].speed(size)
        if number != pool and there > 0.0:
            found.append(
                f"it lies on {_named(view.pools[pool].name)}: at its size it is believed to train {speed / there:.2g}"
                f" times as fast there as on {_named(other.name)}"
            )
    if size.workers > 1:
        kept = 1.0 - loss_apart(view, pool, job, size.workers)
        if len(nodes) == 1:
            found.append(
                f"its {size.workers} workers are packed on one node: on two they are believed to train"
                f" {kept:.2g} times as fast"
            )
        else:
            here = view.relative_speed(pool, job, shares) / view.relative_speed(pool, job, (Share(nodes[0], size),))
            found.append(
                f"its {size.workers} workers lie on {len(nodes)} nodes: they are believed to train {here:.2g} times as"
                " fast as on one"
            )
    return found


def _named(pool: str) -> str:
    return f"{pool} GPUs" if pool else "GPUs of no named type"


def _prices_of(policy: SetPolicy, contention: float, job: Job) -> list[str]:
    prices = policy.price_terms.at(contention)
    now, usually = (f"{_TENTH**each.work_exponent:.2g}" for each in (prices, USUAL_PRICES))
    found = [
        f"the jobs here could use {math.exp(2.0 * contention):.2g} times what the cluster has; when it is that full, a"
        f" job with a tenth of another's work counts {now} times as much as the other (usually {usually} times)"
    ]
    if job.kind.uses_ps:
        found.append(f"a parameter server is reckoned as {prices.ps_price:.2g} workers (usually as 1)")
    return found
