"""Case of the compiled twin in memory: jobs, cluster and policy as its code reads them, and what it gave."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import (
    MAX_ALLREDUCE_WORKERS,
    MAX_TASKS_PER_ROLE,
    CapacityMode,
    JobKind,
    PlacementEffect,
    Resources,
    SpeedModel,
)
from policy_net.errors import NoProgress
from policy_net.exchange.spec import SET_OUTPUTS
from policy_net.laboratory.noise import JOB_PART, job_key, noise_factor
from policy_net.laboratory.simulation.case_nodes import CaseNodes, NodeStages, all_node_ids
from policy_net.laboratory.simulation.environment import DecideOn, Environment, PlacementStrategy, kept_for_the_latest
from policy_net.laboratory.simulation.metrics import JobOutcome, RunCounters
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob
from policy_net.placement.layout import placing_order
from policy_net.policy import SchedulerPolicy
from policy_net.set_policy.policy import SetPolicy
from policy_net.throughput.beliefs import BeliefsByType
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs
from policy_net.twin.believed import BelievedTypes, FittedTypes, ProcessTypes, address_of, cells_of, split_of
from policy_net.twin.dl2_network import NetworkOfCase
from policy_net.twin.memory import FIT, JOB, CaseMemory, Standing, TypeMemory, parameters_of, widths_of
from policy_net.twin.schedulers import Heuristic, heuristic_of

NO_PROGRESS, LOSES = 2, 4
"""Statuses of a run in which nothing makes progress any more, and of one in which jobs lose it again and again."""


@dataclass(frozen=True, slots=True)
class CaseJobs:
    """What follows from a workload and its cluster.

    Attributes:
        kinds: of every type, in the order of their numbers.
        beyond: types of which some job may have, or asks for, more than the usual number of workers.
        classes: what tasks need, each once, in placing order.
        rows: of `JOB`, one a job.
    """

    kinds: Mapping[str, JobKind]
    beyond: Set[str]
    classes: Sequence[Resources]
    rows: NDArray[Any]
    nodes: NodeStages


@kept_for_the_latest
def case_jobs(workload: Workload, environment: Environment) -> CaseJobs:
    """The jobs of a workload on a cluster."""
    kinds = {job.job_type: job.kind for job in workload.jobs}
    kinds |= {job.trains_as: job.kind for job in workload.jobs if job.trains_as not in kinds}
    beyond = {job.job_type for job in workload.jobs if max(job.max_workers, job.requested.workers) > MAX_TASKS_PER_ROLE}
    classes = _demand_classes(workload.jobs)
    rows = _job_rows(workload.jobs, environment, list(kinds), classes)
    return CaseJobs(kinds, beyond, classes, rows, NodeStages(environment, classes))


@kept_for_the_latest
def relative_speeds(
    effect: PlacementEffect, workload: Workload, environment: Environment
) -> Mapping[str, NDArray[np.float64]]:
    """By type, speeds over that in its best place, shape (65, 65) [workers, nodes that hold some]."""
    most_nodes, beyond = len(all_node_ids(environment)), case_jobs(workload, environment).beyond
    beyond = beyond | {job.trains_as for job in workload.jobs if job.job_type in beyond}
    return {
        job_type: _relative_speeds(
            effect, job_type, MAX_ALLREDUCE_WORKERS if job_type in beyond else MAX_TASKS_PER_ROLE, max(most_nodes, 2)
        )
        for job_type in case_jobs(workload, environment).kinds
    }


def _demand_classes(jobs: Sequence[WorkloadJob]) -> list[Resources]:
    demands = {job.worker_demand for job in jobs} | {job.ps_demand for job in jobs if job.max_ps}
    return sorted(demands, key=placing_order)


def _job_rows(
    jobs: Sequence[WorkloadJob], environment: Environment, types: list[str], classes: list[Resources]
) -> NDArray[Any]:
    numbers = {job_type: number for number, job_type in enumerate(types)}
    places = {demand: place for place, demand in enumerate(classes)}
    keys = [job_key(environment.seed, job.job_id) for job in jobs]
    same = ("total_epochs", "samples_per_epoch", "report_factor", "work_known")
    caps = ("max_workers", "max_ps", "min_workers", "min_ps")
    columns: dict[str, list[Any]] = {name: [getattr(job, name) for job in jobs] for name in (*same, *caps)} | {
        "submit_seconds": [job.submit_time_seconds for job in jobs],
        "declared_epochs": [math.nan if job.declared_epochs is None else job.declared_epochs for job in jobs],
        "speed_factor": [noise_factor(key, JOB_PART, environment.job_noise) for key in keys],
        "noise_key": keys,
        "type": [numbers[job.job_type] for job in jobs],
        "trains_as": [numbers[job.trains_as] for job in jobs],
        "uses_ps": [job.kind.uses_ps for job in jobs],
        "worker_cpu": [job.worker_demand.cpu_milli for job in jobs],
        "worker_gpu": [job.worker_demand.gpu for job in jobs],
        "ps_cpu": [job.ps_demand.cpu_milli for job in jobs],
        "ps_gpu": [job.ps_demand.gpu for job in jobs],
        "worker_class": [places[job.worker_demand] for job in jobs],
        "ps_class": [places[job.ps_demand if job.max_ps else job.worker_demand] for job in jobs],
        "requested_workers": [job.requested.workers for job in jobs],
        "requested_ps": [job.requested.ps for job in jobs],
    }
    rows = np.zeros(len(jobs), dtype=JOB)
    for name, values in columns.items():
        rows[name] = values
    return rows


def _relative_speeds(effect: PlacementEffect, job_type: str, most: int, all_nodes: int) -> NDArray[np.float64]:
    """Speeds of a type over that in its best place, shape (65, 65) [workers, nodes that hold some], up to `most`."""
    side = MAX_ALLREDUCE_WORKERS + 1
    relative = np.ones((side, side))
    for workers in range(1, most + 1):
        for nodes in range(1, min(workers, all_nodes) + 1):
            apart = (("", workers - nodes + 1), *((("", 1),) * (nodes - 1)))
            relative[workers, nodes] = effect.relative_speed(job_type, apart)
    return relative


MAX_IDLE_DECISIONS = 1000
"""Decisions in a row without any progress, with no arrival to wait for, after which a replay gives up."""

MAX_WAITING_DECISIONS = 100_000
"""The same where there are nodes to wait for: some always fail and return, and may never be what is lacking. Where jobs
lose what they have trained, so many decisions without any job's end."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """Where a run stopped as nothing came of it any more: how many jobs were left, and the first of them.

    Attributes:
        decisions: without any progress; where jobs only lose what they have trained, without any job's end.
        loses: whether jobs train, and lose it with their nodes.
    """

    jobs: int
    first_job_id: str
    decisions: int
    time_seconds: float
    loses: bool = False

    def error(self, policy: str, workload: str) -> NoProgress:
        """The error of a policy's run of a workload."""
        if self.loses:
            return NoProgress(
                f"workload {workload!r} under policy {policy!r}: no job has ended in {self.decisions} decisions up to"
                f" {self.time_seconds:.0f} s, while nodes failed and training since the last checkpoint was lost: the"
                " replay would never end; let nodes fail less often, or checkpoint more often"
            )
        return NoProgress(
            f"policy {policy!r} let none of the {self.jobs} remaining jobs of workload {workload!r} train in"
            f" {self.decisions} decisions up to {self.time_seconds:.0f} s (the first is {self.first_job_id!r}): the"
            " replay would never end"
        )


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """Outcome of a run, compiled or not; `standstill` where it never came to its end."""

    outcomes: tuple[JobOutcome, ...]
    counters: RunCounters
    training_gpu_seconds: float
    longest_gaps: Mapping[str, float]
    standstill: Standstill | None = None


@dataclass
class _Arrays:
    """Arrays that the compiled code reads or writes; kept alive here."""

    kept: list[NDArray[Any]] = field(default_factory=list)

    def floats(self, values: Any) -> int:
        return self.keep(np.ascontiguousarray(values, dtype=np.float64))

    def integers(self, values: Any) -> int:
        return self.keep(np.ascontiguousarray(values, dtype=np.int64))

    def keep(self, array: NDArray[Any]) -> int:
        self.kept.append(array)
        return address_of(array)


class Case:
    """A case that is not `uncovered` in memory, and its results."""

    def __init__(
        self,
        workload: Workload,
        environment: Environment,
        policy: SchedulerPolicy,
        speeds: SpeedModel,
        effect: PlacementEffect | None,
    ) -> None:
        self._jobs = workload.jobs
        self._stated = {job.job_type: job.kind for job in workload.jobs}  # they have the first numbers
        heuristic = None if isinstance(policy, SetPolicy) else heuristic_of(policy)
        self._arrays = _Arrays()
        self._prepared = prepared = case_jobs(workload, environment)
        kinds, beyond = prepared.kinds, prepared.beyond
        pooled = environment.capacity_mode is CapacityMode.POOLED
        placed_effect = None if pooled else effect
        self._believed: ProcessTypes | FittedTypes | None = None
        self._network: NetworkOfCase | None = None
        network = None if heuristic is None else heuristic.network
        self._counts_decisions = policy if isinstance(policy, SetPolicy) else network
        given: SpeedModel | None = None
        if isinstance(policy, SetPolicy):
            given = policy.speeds
            self._believed = None if policy.beliefs is None else BelievedTypes(policy.beliefs, self._stated, beyond)
        elif heuristic is not None:
            given = heuristic.speeds
            self._believed = None if heuristic.beliefs is None else _learned(heuristic.beliefs, self._stated, beyond)
        self._types = (TypeMemory * len(kinds))()
        for number, job_type in enumerate(kinds):
            self._fill_type(number, job_type, kinds[job_type], speeds, given)
            if placed_effect is not None:
                relative = relative_speeds(placed_effect, workload, environment)
                self._types[number].relative = self._arrays.keep(relative[job_type])
                if isinstance(policy, SetPolicy) and policy.given_effect is not None:
                    planned = relative_speeds(policy.given_effect, workload, environment)
                    self._types[number].planned = self._arrays.keep(planned[job_type])
        self.memory = memory = CaseMemory(
            jobs=len(workload.jobs), types=len(kinds), stated_types=len(self._stated), pooled=pooled
        )
        memory.on_events = environment.decide_on is DecideOn.EVENT
        memory.packed = environment.placement is PlacementStrategy.PACK
        memory.distance_matters = placed_effect is not None
        memory.slot_seconds, memory.debounce_seconds = environment.slot_seconds, environment.debounce_seconds
        memory.noise_variance = math.log1p(environment.speed_noise * environment.speed_noise)
        memory.resize_seconds, memory.resume_seconds = environment.resize_seconds, environment.resume_seconds
        memory.start_seconds, memory.checkpoint_seconds = environment.start_seconds, environment.checkpoint_seconds
        memory.most_idle, memory.most_waiting = MAX_IDLE_DECISIONS, MAX_WAITING_DECISIONS
        memory.changes_nodes = environment.changes_nodes
        classes = prepared.classes
        memory.classes = len(classes)
        memory.class_cpu = self._arrays.integers([demand.cpu_milli for demand in classes])
        memory.class_gpu = self._arrays.integers([demand.gpu for demand in classes])
        self._nodes = CaseNodes(prepared.nodes)
        self._nodes.fill(memory)
        memory.job = address_of(prepared.rows)
        memory.type = ctypes.addressof(self._types)
        if isinstance(policy, SetPolicy):
            self._state_set(policy)
        elif heuristic is not None:
            self._state_heuristic(heuristic)
        self._state_results()

    def _fill_type(
        self, number: int, job_type: str, kind: JobKind, speeds: SpeedModel, given: SpeedModel | None
    ) -> None:
        memory = self._types[number]
        memory.truth = self._arrays.floats(cells_of(speeds.grid(job_type), kind))
        memory.uses_ps = kind.uses_ps
        if self._believed is not None and job_type in self._stated:
            self._believed.fill(number, job_type, memory)
        if given is not None:
            memory.given = self._arrays.floats(cells_of(given.grid(job_type), kind))

    def _state_heuristic(self, heuristic: Heuristic) -> None:
        memory = self.memory
        memory.scheduler = heuristic.code
        memory.fits = heuristic.beliefs is not None
        if heuristic.network is not None:
            self._network = NetworkOfCase(heuristic.network, [job.job_type for job in self._jobs])
            memory.network = ctypes.addressof(self._network.memory)
        if isinstance(self._believed, FittedTypes):
            memory.refit_growth = self._believed.refit_growth
            memory.fit = FIT(self._believed.fit)

    def _state_set(self, policy: SetPolicy) -> None:
        memory, parameters = (
            self.memory,
            parameters_of(policy.spec, policy.residual, policy.price_terms, policy.session_terms),
        )
        memory.plans_places = memory.distance_matters and policy.plans_places
        memory.silent = policy.residual.silent
        memory.parameters, memory.parameter = len(parameters), self._arrays.floats(parameters)
        widths = widths_of(policy.spec, SET_OUTPUTS)
        memory.layers, memory.widths = len(widths) - 1, self._arrays.integers(widths)
        believed = self._believed
        memory.learns = believed is not None
        if isinstance(believed, BelievedTypes):
            memory.ended, memory.passed = address_of(believed.ended), address_of(believed.passed)
            memory.restart_mean_seconds = address_of(believed.restart_mean_seconds)
            memory.resized = address_of(believed.resized)
            memory.restarts_seen = address_of(believed.restarts_seen)
            believed.fill_sessions(memory, len(self._jobs))
            believed.fill_places(memory)

    def _state_results(self) -> None:
        memory, jobs = self.memory, len(self._jobs)
        self._start, self._end = np.full(jobs, np.nan), np.full(jobs, np.nan)
        self._gap = np.zeros(jobs)
        self._samples, self._speed = np.zeros(jobs), np.zeros(jobs)
        self._starting, self._training = np.full(jobs, -1.0), np.zeros(jobs, dtype=np.int64)
        self._trained_size = np.zeros(jobs, dtype=np.int64)
        memory.start_at, memory.end_at = address_of(self._start), address_of(self._end)
        memory.longest_gap = address_of(self._gap)
        memory.present_samples, memory.present_speed = address_of(self._samples), address_of(self._speed)
        memory.starting_seconds, memory.training = address_of(self._starting), address_of(self._training)
        memory.trained_size = address_of(self._trained_size)

    def keep_beliefs(self, decisions: int) -> None:
        """Let the policy believe what was found out, and count its decisions where its random numbers follow them."""
        if self._counts_decisions is not None:
            self._counts_decisions.decision_index += decisions
        if not isinstance(self._believed, BelievedTypes):
            if self._believed is not None:
                self._believed.keep()
            return
        ids = [job.job_id for job in self._jobs]
        present = [
            [ids[at], float(self._samples[at]), float(self._speed[at])] for at in np.flatnonzero(self._speed).tolist()
        ]
        starting = [[ids[at], float(self._starting[at])] for at in np.flatnonzero(self._starting >= 0.0).tolist()]
        trains = np.flatnonzero(self._training).tolist()
        training = [ids[at] for at in trains]
        sizes = [[ids[at], *split_of(int(self._trained_size[at]), self._jobs[at].kind)] for at in trains]
        placed = bool(self.memory.distance_matters)
        self._believed.keep_all(present, sorted(starting), sorted(training), sorted(sizes), ids, placed=placed)

    def failure(self) -> BaseException:
        """Why the run could not go on."""
        found = self._believed.failure if isinstance(self._believed, FittedTypes) else None
        of_network = None if self._network is None else self._network.failure
        return found or self._nodes.failure or of_network or MemoryError("no memory for a simulation")

    def end_of(self, job_id: str) -> float | None:
        """Seconds at which a job has ended; None: it has not."""
        at = next(number for number, job in enumerate(self._jobs) if job.job_id == job_id)
        return None if math.isnan(self._end[at]) else float(self._end[at])

    def result(self, standing: Standing) -> FinishedRun:
        """What the run gave."""
        outcomes = tuple(
            JobOutcome(spec.job_id, spec.submit_time_seconds, *(None if math.isnan(at) else at for at in times))
            for spec, *times in zip(self._jobs, self._start.tolist(), self._end.tolist(), strict=True)
        )
        counted = [each.name for each in fields(RunCounters) if hasattr(standing, each.name)]
        counters = RunCounters(**{name: getattr(standing, name) for name in counted})
        gaps = dict(zip((spec.job_id for spec in self._jobs), self._gap.tolist(), strict=True))
        still = None
        if standing.status in (NO_PROGRESS, LOSES):
            loses, first = standing.status == LOSES, self._jobs[standing.first].job_id
            decisions = standing.losing_decisions if loses else standing.waiting_decisions
            still = Standstill(standing.present, first, decisions, standing.time_seconds, loses=loses)
        return FinishedRun(outcomes, counters, standing.training_gpu_seconds, gaps, still)


def _learned(
    beliefs: BeliefsByType[Any], kinds: Mapping[str, JobKind], beyond: Collection[str]
) -> ProcessTypes | FittedTypes:
    """What a heuristic believes: Gaussian processes are the compiled code's own, another fit is the reference's."""
    if isinstance(beliefs, GaussianProcessBeliefs):
        return ProcessTypes(beliefs, kinds, beyond)
    return FittedTypes(beliefs, kinds)
