"""Replay of one workload under one policy to the end, and how the policy did.

Cases that the compiled twin covers give the reference's result there, decision for decision; `tests/policy_net/twin`
compares them on drawn cases. Policies that the twin does not know, drawn decisions of `set`, GPU types, and extreme
figures are left to the reference.
"""

from __future__ import annotations

import copy
import ctypes
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from policy_net.domain import SUSPENDED, CapacityMode, JobKind, PlacementEffect, Progress, SpeedModel
from policy_net.errors import BadInput
from policy_net.laboratory.simulation import case
from policy_net.laboratory.simulation.admission import check_jobs_can_run
from policy_net.laboratory.simulation.case import Case, FinishedRun, Standstill
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import DecideOn, Environment, kept_for_the_latest
from policy_net.laboratory.simulation.metrics import (
    JobOutcome,
    JobResult,
    RunCounters,
    TrainingWatch,
    job_results,
    summarise,
    summarise_jobs,
)
from policy_net.laboratory.speeds.placement_effect import FittedPlacementEffect
from policy_net.laboratory.workloads.workload import Workload
from policy_net.policy import SchedulerPolicy, decides_at_once
from policy_net.set_policy.beliefs import LIFETIMES_KEY, RESTARTS_KEY
from policy_net.set_policy.policy import SetPolicy
from policy_net.twin.believed import knows_gpu_types
from policy_net.twin.dl2_network import uncovered_network
from policy_net.twin.library import library, notice
from policy_net.twin.memory import Standing
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
        if heuristic.network is not None:
            found = uncovered_network(heuristic.network)
    reasons = {
        "the cluster is beyond measure": _beyond_measure(environment),
        "the effect of places is not the fitted one": places
        and not all(type(each) is FittedPlacementEffect for each in (effect, places_of_plan or effect)),
        "GPUs are of several types": places
        and (bool(environment.gpu_types) or any(change.gpu_type for change in environment.node_changes)),
    }
    found = found or next((reason for reason, applies in reasons.items() if applies), None)
    found = found or _unusual_jobs(workload) or _unusual_speeds(workload, given, speeds)
    if type(policy) is SetPolicy:
        found = found or _unready(workload, policy, places=places)
    return found or notice()


def _unlike_the_twin(policy: SetPolicy) -> str | None:
    reasons = {
        "decisions are drawn": not policy.chance.greedy or policy.chance.exploration > 0.0,
        "a weight is not finite": not np.isfinite(_numbers_of(policy)).all(),
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


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


@kept_for_the_latest
def _unusual_jobs(workload: Workload) -> str | None:
    kinds: dict[str, JobKind] = {}
    for job in workload.jobs:
        amounts = [job.total_epochs, job.samples_per_epoch, job.total_epochs * job.samples_per_epoch]
        amounts += [] if job.declared_epochs is None else [job.declared_epochs]
        reasons = {
            f"jobs of type {job.job_type!r} are of two kinds": kinds.setdefault(job.job_type, job.kind) is not job.kind,
            f"job {job.job_id!r} has an extreme amount of work": not all(LEAST <= amount <= MOST for amount in amounts),
            f"job {job.job_id!r} comes in thousands of years": job.submit_time_seconds > LONGEST_SECONDS,
            f"job {job.job_id!r} needs more than there is anywhere": max(
                *(job.worker_demand.cpu_milli, job.worker_demand.gpu, job.ps_demand.cpu_milli, job.ps_demand.gpu)
            )
            > MOST_RESOURCES,
            f"job {job.job_id!r} asks for less than nothing": min(job.requested.workers, job.requested.ps) < 0,
        }
        for reason, applies in reasons.items():
            if applies:
                return reason
    return None


def _unusual_speeds(workload: Workload, given: SpeedModel | None, speeds: SpeedModel) -> str | None:
    for job_type in {job_type for job in workload.jobs for job_type in (job.job_type, job.trains_as)}:
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


_CHUNK = 256
"""Decisions between two looks at the outside: an interrupt, or a progress bar."""
_OUT_OF_MEMORY = 3


def run_compiled(
    workload: Workload,
    environment: Environment,
    policy: SchedulerPolicy,
    speeds: SpeedModel,
    effect: PlacementEffect | None = None,
    on_progress: Callable[[float], None] | None = None,
    *,
    keep_beliefs: bool = True,
    until_done: str | None = None,
) -> FinishedRun:
    """Run a case that is not `uncovered` to its end; the policy then believes what it has found out, if it is to.

    With `until_done` it ends with that job; what came later is left out of the outcomes.

    Raises:
        BadInput: a job of the workload can never run in this environment.
        MemoryError: there is too little of it.
    """
    _check(workload, environment, speeds)
    prepared = Case(workload, environment, policy, speeds, effect)
    standing = Standing()
    twin = library().twin_open(ctypes.byref(prepared.memory), ctypes.byref(standing))
    if not twin:
        raise MemoryError("no memory for a simulation")
    try:
        while standing.status == 0 and (until_done is None or prepared.end_of(until_done) is None):
            library().twin_advance(twin, _CHUNK)
            if on_progress is not None:
                on_progress(standing.ended_jobs / len(workload.jobs))
    finally:
        library().twin_close(twin)
    if standing.status == _OUT_OF_MEMORY:
        raise prepared.failure()
    if keep_beliefs:
        prepared.keep_beliefs(standing.decisions)
    found = prepared.result(standing)
    end = None if until_done is None else prepared.end_of(until_done)
    if end is None:
        return found
    ended = (one if (one.end_seconds or math.inf) <= end else replace(one, end_seconds=None) for one in found.outcomes)
    return replace(found, outcomes=tuple(ended), standstill=None)


@kept_for_the_latest
def _check(workload: Workload, environment: Environment, speeds: SpeedModel) -> None:
    grids = {name: speeds.grid(name).tolist() for name in {spec.trains_as for spec in workload.jobs}}
    check_jobs_can_run(workload, environment, grids)


@dataclass(frozen=True)
class ReplayResult:
    """How one policy did on one workload.

    Attributes:
        gpu_training_share: like the utilization, but only of the time in which the job that held the GPU made progress.
        job_results: what every job went through, in the workload's order.
        inference_p50_us: median time of one action, if the policy records `inference_seconds`.
        slot_decide_p99_ms: 99th percentile of the time from state to allocation; None where that was not measured.
        timeline: per job, (time, workers, PSs) at every change of its tasks; empty unless asked for.
    """

    workload: str
    policy: str
    outcomes: tuple[JobOutcome, ...]
    counters: RunCounters
    gpu_utilization: float | None
    inference_p50_us: float | None
    slot_decide_p99_ms: float | None
    wall_seconds: float
    timeline: dict[str, list[tuple[float, int, int]]] = field(default_factory=dict)
    gpu_training_share: float | None = None
    job_results: tuple[JobResult, ...] = ()

    @property
    def most_at_once(self) -> int:
        """Most jobs that were there at the same time."""
        ends = [(one.end_seconds, -1) for one in self.outcomes if one.end_seconds is not None]
        moves = sorted([*ends, *((one.submit_seconds, 1) for one in self.outcomes)])
        return max(itertools.accumulate(step for _, step in moves), default=0)

    def to_json(self) -> dict[str, Any]:
        """The figures under the names of the command's JSON output."""
        return {
            "workload": self.workload,
            "policy": self.policy,
            "jobs": len(self.outcomes),
            **asdict(summarise(self.outcomes)),
            **asdict(summarise_jobs(self.job_results)),
            "gpu_utilization": self.gpu_utilization,
            "gpu_training_share": self.gpu_training_share,
            "gpu_hours": self.counters.gpu_seconds / 3600.0,
            "inference_p50_us": self.inference_p50_us,
            "slot_decide_p99_ms": self.slot_decide_p99_ms,
            "wall_seconds": self.wall_seconds,
        }


def replay(
    workload: Workload,
    environment: Environment,
    policy: SchedulerPolicy,
    speeds: SpeedModel,
    on_progress: Callable[[float], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    *,
    record_timeline: bool = False,
    placement_effect: PlacementEffect | None = None,
    until_done: str | None = None,
    compiled: bool = True,
    keep_beliefs: bool = True,
    by_an_agent: bool = False,
) -> ReplayResult:
    """Simulate until every job has ended, or the one that is asked about.

    A policy that `decides_at_once`, as the queues of clusters do, is not held to the environment's debounce. Where the
    compiled twin covers the case (`uncovered`), it is simulated there: the same result, in a hundredth of the
    time.

    Args:
        on_progress: called after every decision with the share of jobs that have ended, 0 to 1.
        clock: measures the policy; only the three time figures of the result depend on it.
        placement_effect: see `Simulation`.
        until_done: id of the job with whose end the replay ends; counters may count some decisions more.
        compiled: whether the compiled twin may be used; it measures no time of single decisions.
        keep_beliefs: whether the policy goes on with what it found out here; without, it is as it was.
        by_an_agent: whether an agent is to decide by it, at an agent's pace, whatever the policy.

    Raises:
        BadInput: a job of the workload can never run in this environment.
        InvalidAllocation: the policy decided something impossible.
        NoProgress: the policy keeps all remaining jobs from training.
    """
    started = clock()
    if environment.decide_on is DecideOn.EVENT and decides_at_once(policy) and not by_an_agent:
        environment = replace(environment, debounce_seconds=0.0)
    if compiled and not record_timeline and uncovered(workload, environment, policy, speeds, placement_effect) is None:
        run = run_compiled(
            workload,
            environment,
            policy,
            speeds,
            placement_effect,
            on_progress,
            keep_beliefs=keep_beliefs,
            until_done=until_done,
        )
        if run.standstill is not None:
            raise run.standstill.error(policy.name, workload.name)
        return _result(run, workload, policy, speeds, lambda: clock() - started)
    if not keep_beliefs:
        policy = copy.deepcopy(policy)
    simulation = Simulation(workload, environment, speeds, placement_effect)
    decide_seconds: list[float] = []
    timeline: dict[str, list[tuple[float, int, int]]] = {}
    watch = TrainingWatch(workload)
    idle_decisions = waiting_decisions = losing_decisions = completed = 0
    lost_before_seconds = 0.0
    while not simulation.finished:
        state, trigger = simulation.observe()
        before = clock()
        decision = policy.decide(state, trigger)
        decide_seconds.append(clock() - before)
        may_change = simulation.jobs.arrivals_pending
        progress = simulation.apply(decision)
        policy.observe(progress)
        watch.on_progress(state.time_seconds, progress)
        ended = sum(entry.finished for entry in progress)
        completed += ended
        may_change = may_change or any(entry.epochs > 0 or entry.paused_seconds > 0 for entry in progress)
        waiting_decisions = 0 if may_change else waiting_decisions + 1
        idle_decisions = 0 if may_change or simulation.nodes.planned_changes_pending else idle_decisions + 1
        left = (len(state.jobs), state.jobs[0].job_id)
        if idle_decisions >= case.MAX_IDLE_DECISIONS or waiting_decisions >= case.MAX_WAITING_DECISIONS:
            still = Standstill(*left, waiting_decisions, simulation.time_seconds)
            raise still.error(policy.name, workload.name)
        if ended:
            losing_decisions, lost_before_seconds = 0, simulation.counters.lost_training_seconds
        elif simulation.counters.lost_training_seconds > lost_before_seconds:
            losing_decisions += 1
        if losing_decisions >= case.MAX_WAITING_DECISIONS:
            still = Standstill(*left, losing_decisions, simulation.time_seconds, loses=True)
            raise still.error(policy.name, workload.name)
        if record_timeline:
            _record(timeline, state.time_seconds, [job.job_id for job in state.jobs], progress)
        if on_progress is not None:
            on_progress(completed / len(workload.jobs))
        if until_done is not None and any(entry.finished and entry.job_id == until_done for entry in progress):
            break
    inference: Sequence[float] = getattr(policy, "inference_seconds", ())
    outcomes = tuple(simulation.jobs.outcomes())
    run = FinishedRun(outcomes, simulation.counters, watch.training_gpu_seconds, watch.longest_gaps)
    return replace(
        _result(run, workload, policy, speeds, lambda: clock() - started),
        inference_p50_us=float(np.median(inference)) * 1e6 if len(inference) else None,
        slot_decide_p99_ms=float(np.percentile(decide_seconds, 99)) * 1e3,
        timeline=timeline,
    )


def _result(
    run: FinishedRun, workload: Workload, policy: SchedulerPolicy, speeds: SpeedModel, wall_seconds: Callable[[], float]
) -> ReplayResult:
    return ReplayResult(
        workload=workload.name,
        policy=policy.name,
        outcomes=run.outcomes,
        counters=run.counters,
        gpu_utilization=run.counters.gpu_utilization(),
        inference_p50_us=None,
        slot_decide_p99_ms=None,
        wall_seconds=wall_seconds(),
        gpu_training_share=run.counters.share_of_gpu_time(run.training_gpu_seconds),
        job_results=job_results(workload, speeds, run.outcomes, run.longest_gaps),
    )


def _record(
    timeline: dict[str, list[tuple[float, int, int]]], now: float, present: Sequence[str], progress: Sequence[Progress]
) -> None:
    """Note every job whose tasks changed at this decision, and the end of those that ended."""
    by_job = {entry.job_id: entry for entry in progress}
    for job_id in present:
        entry = by_job.get(job_id)
        running = SUSPENDED if entry is None else entry.allocation
        history = timeline.setdefault(job_id, [])
        if not history or history[-1][1:] != (running.workers, running.ps):
            history.append((now, running.workers, running.ps))
        if entry is not None and entry.finished:
            history.append((now + entry.paused_seconds + entry.seconds, 0, 0))
