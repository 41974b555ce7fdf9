"""What must hold for any figure to be believed: recorded durations come out again, and every job ends."""

from pathlib import Path

import pytest

import policy_net.baselines  # noqa: F401  (registers the policies' names)
from benchmarks.policy_quality.policies import default_policies
from policy_net.domain import CapacityMode, PolicyContext
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.loaders.record import Recording
from policy_net.laboratory.workloads.recorded import workload_of
from policy_net.laboratory.workloads.sources import read_csv
from policy_net.laboratory.workloads.workload import JobKindChoice, WorkloadOptions
from policy_net.policy import build_policy

CLUSTERS = 22
JOBS = 100
FEW_JOBS = 30


@pytest.fixture(scope="module")
def recordings(data_folder: Path) -> list[Recording]:
    files = sorted((data_folder / "workloads").glob("*.csv"))
    assert len(files) == CLUSTERS
    return [read_csv(file) for file in files]


@pytest.mark.parametrize("kind", list(JobKindChoice))
def test_with_requested_sizes_and_unlimited_gpus_every_duration_is_the_recorded_one(
    kind: JobKindChoice, recordings: list[Recording]
) -> None:
    for recording in recordings:
        workload = workload_of(recording, WorkloadOptions(seed=2_000, limit_jobs=JOBS, job_kind=kind))
        unlimited = Environment(
            nodes=1,  # pooled anyway, and a thousand nodes would be added up at every decision
            gpus_per_node=32 * len(workload.jobs),
            cpus_per_node=128 * len(workload.jobs),
            decide_on=DecideOn.EVENT,
            debounce_seconds=0.0,
            capacity_mode=CapacityMode.POOLED,
        )
        speeds = default_speeds()
        result = replay(workload, unlimited, build_policy("fifo", PolicyContext()), speeds)
        recorded = [record.duration_seconds for record in recording.records[: len(workload.jobs)]]
        measured = [outcome.jct_seconds for outcome in result.outcomes]
        assert measured == pytest.approx(recorded, rel=1e-9, abs=1e-6), recording.name


@pytest.mark.parametrize("policy", default_policies(has_measured_points=False))
def test_every_job_of_every_cluster_ends_under_every_scheduler(policy: str, recordings: list[Recording]) -> None:
    speeds = default_speeds()
    for recording in recordings:
        options = WorkloadOptions(seed=2_000, limit_jobs=FEW_JOBS, job_kind=JobKindChoice.MIX)
        workload = workload_of(recording, options)
        assert workload.suggested_nodes is not None
        # A tick a day instead of three an hour: some jobs take months, and few others bring decisions here.
        environment = Environment(nodes=workload.suggested_nodes, decide_on=DecideOn.EVENT, slot_seconds=86_400.0)
        result = replay(workload, environment, build_policy(policy, PolicyContext(true_speeds=speeds)), speeds)
        assert all(outcome.end_seconds is not None for outcome in result.outcomes), recording.name
