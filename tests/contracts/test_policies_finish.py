"""Every scheduler that ships brings every job of a mixed workload to its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sample_policies import build_event_driven, build_job_selection

import policy_net.baselines
import policy_net.dl2
import policy_net.set_policy  # noqa: F401  (registers its name)
from policy_net.domain import Allocation, CapacityMode, JobKind, PolicyContext, Resources
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import TableSpeedModel
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob
from policy_net.policy import SchedulerPolicy, build_policy, policy_names

POLICIES: dict[str, Callable[[PolicyContext], SchedulerPolicy]] = {
    **{name: partial(build_policy, name) for name in policy_names()},
    "sample: job selection": build_job_selection,
    "sample: event-driven": build_event_driven,
}


def speeds() -> TableSpeedModel:
    """Samples/s that grow with diminishing returns, with servers and without."""
    counts = np.arange(1.0, 17.0)
    served, alone, many = np.zeros((17, 17)), np.zeros((1, 65)), np.arange(1.0, 65.0)
    served[1:, 1:] = 100 / (1 / counts + 0.2 + 0.3 * counts / counts[:, None] + 0.02 * counts)
    alone[0, 1:] = 100 / (1 / many + 0.2 + 0.02 * many)
    return TableSpeedModel({"ps": served, "async": 2 * served, "allreduce": alone}, "a test")


def mixed_workload(*, work_known: bool) -> Workload:
    """18 jobs of three kinds in bursts of three; every fourth needs two workers at least; most that train by
    all-reduce ask for more than 16."""
    jobs = []
    for number in range(18):
        kind = list(JobKind)[number % 3]
        least = 2 if number % 4 == 0 else 1
        asked = number % 7 if kind.uses_ps else 16 + number % 5
        jobs.append(
            WorkloadJob(
                job_id=f"job-{number}",
                job_type=kind.value,
                submit_time_seconds=900.0 * (number // 3),
                total_epochs=200.0 * (1 + number % 5) ** 2,
                samples_per_epoch=100.0,
                worker_demand=Resources(2000, 1) if kind.uses_ps else Resources(400, 0),
                ps_demand=Resources(2000, 0),
                requested=Allocation(max(least, asked), 1 + number % 4 if kind.uses_ps else 0),
                max_workers=8 if kind.uses_ps else 64,
                max_ps=6 if kind.uses_ps else 0,
                kind=kind,
                min_workers=least,
                min_ps=1 if kind.uses_ps else 0,
                work_known=work_known,
            )
        )
    return Workload("mixed", tuple(jobs))


@pytest.mark.parametrize("work_known", [True, False])
@pytest.mark.parametrize(
    ("mode", "decide_on"), [(CapacityMode.NODES, DecideOn.EVENT), (CapacityMode.POOLED, DecideOn.SLOT)]
)
@pytest.mark.parametrize("name", POLICIES)
def test_every_job_of_every_kind_ends(name: str, mode: CapacityMode, decide_on: DecideOn, work_known: bool) -> None:
    truth = speeds()
    policy = POLICIES[name](PolicyContext(true_speeds=truth, measured_speeds=truth))
    workload = mixed_workload(work_known=work_known)
    environment = Environment(nodes=4, decide_on=decide_on, capacity_mode=mode)
    result = replay(workload, environment, policy, truth, clock=lambda: 0.0)
    assert result.to_json()["completed"] == len(workload.jobs)
    assert result.counters.trimmed_tasks == 0


@pytest.mark.parametrize("name", [name for name in POLICIES if not name.startswith("sample")])
def test_even_on_one_node_that_no_request_fits(name: str) -> None:
    truth = speeds()
    jobs = mixed_workload(work_known=True).jobs
    jobs = tuple(
        replace(job, requested=replace(job.requested, workers=8), worker_demand=Resources(2000, 1)) for job in jobs
    )
    policy = POLICIES[name](PolicyContext(true_speeds=truth, measured_speeds=truth))
    result = replay(
        Workload("large requests", jobs), Environment(nodes=1, decide_on=DecideOn.EVENT), policy, truth,
        clock=lambda: 0.0,
    )  # fmt: skip
    assert result.to_json()["completed"] == len(jobs)
