"""Admission to the simulated cluster: refusal of jobs that can never run and of impossible decisions; fixed sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from policy_net.domain import CapacityMode, ClusterState, Decision, Node, Resources
from policy_net.errors import BadInput, InvalidAllocation
from policy_net.laboratory.noise import job_key, uniform
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.node_changes import planned_node_sets
from policy_net.laboratory.simulation.simulated_job import SimulatedJob
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob
from policy_net.placement.capacity import open_capacity


def check_jobs_can_run(
    workload: Workload, environment: Environment, grids: Mapping[str, Sequence[Sequence[float]]]
) -> None:
    """Refuse a workload with a job that could never make progress, instead of simulating for ever.

    Raises:
        BadInput: the least with which a job trains never fits the empty cluster, whatever changes of nodes are
            planned, or it trains at no size that its caps allow.
    """
    phases = planned_node_sets(environment)
    checked: set[tuple[object, ...]] = set()
    for job in workload.jobs:
        caps = (job.min_workers, job.max_workers, job.min_ps, job.max_ps)
        kind = (job.trains_as, job.worker_demand, job.ps_demand, *caps)
        if kind in checked:
            continue
        checked.add(kind)
        if not _fits(job, phases, environment):
            raise BadInput(
                f"workload {workload.name!r}: job {job.job_id!r} never fits: {_least(job)} need more than"
                f" {_cluster(environment)} have: use larger nodes or leave the job out"
            )
        rows = grids[job.trains_as][job.min_ps : job.max_ps + 1]
        if not any(speed > 0 for row in rows for speed in row[job.min_workers : job.max_workers + 1]):
            raise BadInput(
                f"workload {workload.name!r}: job {job.job_id!r} never trains: the speed of type {job.trains_as!r} is 0"
                f" from {job.min_workers} to {job.max_workers} workers and {job.min_ps} to {job.max_ps} PSs:"
                " correct the speed table or leave the job out"
            )


def _fits(job: WorkloadJob, phases: Sequence[tuple[Node, ...]], environment: Environment) -> bool:
    demands = (job.worker_demand,) * job.min_workers + (job.ps_demand,) * job.min_ps
    slot_seconds, mode = environment.slot_seconds, environment.capacity_mode
    empty = (open_capacity(ClusterState(0.0, nodes, (), slot_seconds, mode)) for nodes in phases)
    return any(capacity.fits(*demands) for capacity in empty)


def _cluster(environment: Environment) -> str:
    if environment.node_sizes:
        return f"{environment.nodes} node(s) with {environment.gpus} GPU in all"
    return f"{environment.nodes} node(s) of {environment.cpus_per_node} CPU + {environment.gpus_per_node} GPU"


def _least(job: WorkloadJob) -> str:
    parts = [_tasks(job.min_workers, "worker", job.worker_demand), _tasks(job.min_ps, "PS", job.ps_demand)]
    return " and ".join(filter(None, parts))


def _tasks(count: int, role: str, demand: Resources) -> str:
    if count == 0:
        return ""
    return f"one {role} ({_text(demand)})" if count == 1 else f"{count} {role}s ({_text(demand)} each)"


def with_elastic_share(workload: Workload, environment: Environment, share: float, seed: int) -> Workload:
    """The workload in which only a share of the jobs (0 to 1) may change size, with a note that says so.

    The others have what they asked for, or nothing. Which these are is a hash of seed and id, so that it depends on no
    other job. A job that asked for more than the empty cluster holds is cut under every policy, and stays resizable.

    Raises:
        BadInput: the share is not from 0 to 1.
    """
    if not 0.0 <= share <= 1.0:  # false for NaN too
        raise BadInput(f"elastic-share is {share}: use a number from 0 to 1")
    if share == 1.0:
        return workload
    phases = planned_node_sets(environment)
    known: dict[tuple[object, ...], bool] = {}
    jobs = []
    for job in workload.jobs:
        if uniform(job_key(seed, f"elastic {job.job_id}"), 0) >= share:
            fixed = _fixed(job)
            key = (fixed.worker_demand, fixed.ps_demand, fixed.requested)
            if key not in known:
                known[key] = _fits(fixed, phases, environment)
            if known[key]:
                job = fixed  # noqa: PLW2901  (the job as it comes into the workload)
        jobs.append(job)
    kept = sum(job.fixed_size for job in jobs)
    note = f"{kept} of {len(jobs)} jobs keep the size that they asked for, drawn with seed {seed}"
    return replace(workload, jobs=tuple(jobs), notes=(*workload.notes, note))


def _fixed(job: WorkloadJob) -> WorkloadJob:
    workers = min(max(job.requested.workers, job.min_workers), job.max_workers)
    ps = min(max(job.requested.ps, job.min_ps), job.max_ps)
    return replace(job, min_workers=workers, max_workers=workers, min_ps=ps, max_ps=ps)


def check_decision(
    decision: Decision, present: Mapping[str, SimulatedJob], environment: Environment, total: Resources
) -> None:
    """Refuse what no cluster could do; what nodes lack is left to the placement.

    Raises:
        InvalidAllocation: an unknown job, a number of tasks outside the job's caps, or too much for the pool.
    """
    cpu_milli = gpu = 0
    for job_id, allocation in decision.allocation.items():
        job = present.get(job_id)
        if job is None:
            raise InvalidAllocation(f"the decision names job {job_id!r}, which is not in the cluster")
        spec, workers, ps = job.spec, allocation.workers, allocation.ps
        if not (0 <= workers <= spec.max_workers and 0 <= ps <= spec.max_ps):
            raise InvalidAllocation(
                f"job {job_id!r}: {workers} workers and {ps} PSs are outside its caps"
                f" (0 to {spec.max_workers} workers, 0 to {spec.max_ps} PSs)"
            )
        cpu_milli += workers * spec.worker_demand.cpu_milli + ps * spec.ps_demand.cpu_milli
        gpu += workers * spec.worker_demand.gpu + ps * spec.ps_demand.gpu
    if environment.capacity_mode is CapacityMode.POOLED and not Resources(cpu_milli, gpu).fits_in(total):
        raise InvalidAllocation(
            f"the decision needs {_text(Resources(cpu_milli, gpu))} in all; the cluster has {_text(total)}"
        )


def check_placement(decision: Decision, present: Mapping[str, SimulatedJob], nodes: Sequence[Node]) -> None:
    """Check a placement that a decision brings with it.

    Raises:
        InvalidAllocation: it places other tasks than the decision allocates, on an unknown node, or too many on one.
    """
    free = {node.node_id: node.capacity for node in nodes}
    placement = decision.placement or {}
    for job_id in {**decision.allocation, **placement}:
        workers = ps = 0
        for share in placement.get(job_id, ()):
            if share.node_id not in free:
                raise InvalidAllocation(f"job {job_id!r} is placed on node {share.node_id!r}, which does not exist")
            if share.allocation.workers < 0 or share.allocation.ps < 0:
                raise InvalidAllocation(f"job {job_id!r} has a negative share on node {share.node_id!r}")
            workers += share.allocation.workers
            ps += share.allocation.ps
            if share.allocation.tasks:
                if job_id not in present:
                    raise InvalidAllocation(f"the placement names job {job_id!r}, which is not in the cluster")
                spec = present[job_id].spec
                needed = spec.worker_demand * share.allocation.workers + spec.ps_demand * share.allocation.ps
                if not needed.fits_in(free[share.node_id]):
                    raise InvalidAllocation(
                        f"node {share.node_id!r} has {_text(free[share.node_id])} left, too little for job {job_id!r}"
                    )
                free[share.node_id] -= needed
        desired = decision.of(job_id)
        if (workers, ps) != (desired.workers, desired.ps):
            raise InvalidAllocation(
                f"job {job_id!r} is allocated {desired.workers} workers and {desired.ps} PSs, but {workers} and {ps}"
                " are placed"
            )


def _text(amount: Resources) -> str:
    return f"{amount.cpu_milli / 1000:g} CPU + {amount.gpu} GPU"
