"""Cases that the compiled twin covers, and why not the others.

What it covers gives the reference's result, decision for decision; `tests/policy_net/twin` compares them on drawn
cases. Policies that the twin does not know, drawn or explored decisions, GPU types, and extreme figures are left to the
reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from policy_net.domain import CapacityMode, JobKind, PlacementEffect, SpeedModel
from policy_net.errors import BadInput
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.kept import kept_for_the_latest
from policy_net.laboratory.speeds.placement_effect import FittedPlacementEffect
from policy_net.laboratory.workloads.workload import Workload
from policy_net.policy import SchedulerPolicy
from policy_net.set_policy.beliefs import LIFETIMES_KEY, RESTARTS_KEY
from policy_net.set_policy.policy import SetPolicy
from policy_net.twin.library import notice
from policy_net.twin.places import knows_gpu_types
from policy_net.twin.schedulers import Heuristic, heuristic_of

LEAST, MOST = 1e-90, 1e90
"""Between these, no product or power of two figures of a job leaves what a float can say."""
LONGEST_SECONDS = 1e12
"""Times beyond 30,000 years, or slots of less than a thousandth of a second, are counted in Python's integers."""
MOST_RESOURCES = 10**12
"""Millicores or GPUs, of a task or of all nodes: sums of them stay whole numbers of 64 bits."""


def uncovered(
    workload: Workload,
    environment: Environment,
    policy: SchedulerPolicy,
    speeds: SpeedModel,
    effect: PlacementEffect | None = None,
) -> str | None:
    """Why the compiled twin cannot run this, in a few words; None if it can."""
    places = environment.capacity_mode is not CapacityMode.POOLED and effect is not None
    if type(policy) is SetPolicy:
        given, found = policy.speeds, _unlike_the_twin(policy)
        places_of_plan = policy.given_effect if policy.plans_places else None
    else:
        heuristic = heuristic_of(policy)
        if heuristic is None:
            return f"the twin knows no policy {policy.name}"
        given, found, places_of_plan = heuristic.speeds, _of_another_kind(workload, heuristic), None
    said = {
        "the cluster is beyond measure": _beyond_measure(environment),
        "the effect of places is not the fitted one": places
        and not all(type(each) is FittedPlacementEffect for each in (effect, places_of_plan or effect)),
        "GPUs are of several types": places and _has_gpu_types(environment),
    }
    found = found or next((reason for reason, holds in said.items() if holds), None)
    found = found or _unusual_jobs(workload) or _unusual_speeds(workload, given, speeds)
    if type(policy) is SetPolicy:
        found = found or _unready(workload, policy, places=places)
    return found or notice()


def _unlike_the_twin(policy: SetPolicy) -> str | None:
    said = {
        "decisions are drawn": not policy.chance.greedy or policy.chance.exploration > 0.0,
        "a weight is not finite": not np.isfinite(_numbers_of(policy)).all(),
    }
    return next((reason for reason, holds in said.items() if holds), None)


def _of_another_kind(workload: Workload, heuristic: Heuristic) -> str | None:
    """Beliefs about a type of one name that is not the workload's."""
    if heuristic.beliefs is None:
        return None
    kinds = heuristic.beliefs.checkpoint()["kinds"]
    kinds.update({name: one.form.kind.value for name, one in heuristic.beliefs.beliefs_by_type().items()})
    for job in workload.jobs:
        if kinds.get(job.job_type, job.kind.value) != job.kind.value:
            return f"jobs of type {job.job_type!r} are of another kind than is believed"
    return None


def _numbers_of(policy: SetPolicy) -> list[float]:
    sessions = policy.session_terms
    return [*policy.residual.flat, *policy.price_terms.flat, *(() if sessions is None else sessions.flat)]


def _beyond_measure(environment: Environment) -> bool:
    pauses = (environment.resize_seconds, environment.resume_seconds, environment.start_seconds)
    seconds = (environment.slot_seconds, environment.debounce_seconds, *pauses)
    nodes = [node.capacity for node in environment.node_list]
    nodes += [change.capacity or environment.node_capacity for change in environment.node_changes if change.up]
    cpu_milli, gpus = sum(node.cpu_milli for node in nodes), sum(node.gpu for node in nodes)
    return (
        max(*seconds, environment.checkpoint_seconds) > LONGEST_SECONDS
        or environment.slot_seconds < 1.0 / 1000.0
        or max(cpu_milli, gpus) > MOST_RESOURCES
    )


def _has_gpu_types(environment: Environment) -> bool:
    return bool(environment.gpu_types) or any(change.gpu_type for change in environment.node_changes)


@kept_for_the_latest
def _unusual_jobs(workload: Workload) -> str | None:
    kinds: dict[str, JobKind] = {}
    for job in workload.jobs:
        amounts = [job.total_epochs, job.samples_per_epoch, job.total_epochs * job.samples_per_epoch]
        amounts += [] if job.declared_epochs is None else [job.declared_epochs]
        said = {
            f"jobs of type {job.job_type!r} are of two kinds": kinds.setdefault(job.job_type, job.kind) is not job.kind,
            f"job {job.job_id!r} has an extreme amount of work": not all(LEAST <= amount <= MOST for amount in amounts),
            f"job {job.job_id!r} comes in thousands of years": job.submit_time_seconds > LONGEST_SECONDS,
            f"job {job.job_id!r} needs more than there is anywhere": max(
                *(job.worker_demand.cpu_milli, job.worker_demand.gpu, job.ps_demand.cpu_milli, job.ps_demand.gpu)
            )
            > MOST_RESOURCES,
            f"job {job.job_id!r} asks for less than nothing": min(job.requested.workers, job.requested.ps) < 0,
        }
        for reason, holds in said.items():
            if holds:
                return reason
    return None


def _unusual_speeds(workload: Workload, given: SpeedModel | None, speeds: SpeedModel) -> str | None:
    for job_type in {job.job_type for job in workload.jobs}:
        for model in (speeds, given):
            if model is None:
                continue
            try:
                grid = model.grid(job_type)
            except BadInput:
                return f"nobody knows speeds of type {job_type!r}"
            positive = grid[grid != 0]
            if not ((positive >= LEAST) & (positive <= MOST)).all():
                return f"the speeds of type {job_type!r} are extreme"
    return None


def _unready(workload: Workload, policy: SetPolicy, *, places: bool) -> str | None:
    """What the policy believes already that the twin cannot start from."""
    if policy.beliefs is None:
        return None
    for job in workload.jobs:
        process = policy.beliefs.beliefs_by_type().get(job.job_type)
        if process is not None and process.form.kind is not job.kind:
            return f"jobs of type {job.job_type!r} are of another kind than is believed"
    if places and policy.plans_places and knows_gpu_types(policy.beliefs.places):
        return "the policy's beliefs are of GPU types"
    snapshot: Any = policy.beliefs.snapshot()
    restarts = snapshot[RESTARTS_KEY]
    if snapshot[LIFETIMES_KEY]["present"] or restarts["starting"] or restarts["training"]:
        return "the policy's beliefs are of jobs that are still there"
    return None
