from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.policy_quality.cells import Disturbance, Durations, RealCell, SyntheticCell
from benchmarks.policy_quality.seeds import Part
from benchmarks.policy_quality.worlds import build_world, clusters_in, nodes_at_load
from policy_net.domain import CapacityMode, JobKind
from policy_net.laboratory.simulation.environment import DecideOn, PlacementStrategy
from policy_net.laboratory.speeds.speed import default_speeds

SYNTHETIC = SyntheticCell(24, 60, "varied", CapacityMode.POOLED, Disturbance.NONE, 9_700_000, 2_000)
REAL = RealCell(
    cluster="tiny",
    file_digest="d",
    jobs=40,
    window=1,
    window_jobs=40,
    part=Part.TEST,
    model_seed=2_000,
    noise_seed=2_000,
    job_kind="mix",
    load=0.9,
    durations=Durations.KNOWN,
    capacity=CapacityMode.POOLED,
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A cluster of 80 jobs, one every ten minutes, each of 1–4 GPUs for one to three hours."""
    rows = [f"j{n:02d},{600 * n},{3600 * (1 + n % 3)},{1 + n % 4}" for n in range(80)]
    (tmp_path / "workloads").mkdir()
    lines = "\n".join(["job_id,submit_time_s,duration_s,num_gpus", *rows, ""])
    (tmp_path / "workloads" / "tiny.csv").write_text(lines)
    return tmp_path


def test_made_up_workloads_are_decided_by_slots_and_recorded_ones_on_events(data: Path) -> None:
    assert build_world(SYNTHETIC, None).environment.decide_on is DecideOn.SLOT
    assert build_world(REAL, data).environment.decide_on is DecideOn.EVENT


def test_the_same_cell_gives_the_same_world(data: Path) -> None:
    for cell in (SYNTHETIC, REAL, replace(REAL, durations=Durations.LOGNORMAL)):
        one, other = build_world(cell, data), build_world(cell, data)
        assert one.workload == other.workload
        assert one.environment == other.environment


def test_capacity_and_disturbance_do_not_change_the_jobs() -> None:
    plain = build_world(SYNTHETIC, None).workload.jobs
    for disturbance in Disturbance:
        world = build_world(replace(SYNTHETIC, capacity=CapacityMode.NODES, disturbance=disturbance), None)
        assert [job.total_epochs for job in world.workload.jobs] == [job.total_epochs for job in plain]


@pytest.mark.parametrize("disturbance", [each for each in Disturbance if each is not Disturbance.NONE])
def test_every_disturbance_disturbs(disturbance: Disturbance) -> None:
    plain, disturbed = (build_world(cell, None) for cell in (SYNTHETIC, replace(SYNTHETIC, disturbance=disturbance)))
    assert (disturbed.workload, disturbed.environment) != (plain.workload, plain.environment)


def test_what_is_declared_is_true_wrong_or_nothing(data: Path) -> None:
    known, wrong, unknown = (build_world(replace(REAL, durations=each), data).workload.jobs for each in Durations)
    assert all(job.shown_epochs == job.total_epochs and job.work_known for job in known)
    assert all(job.shown_epochs != job.total_epochs and job.work_known for job in wrong)
    assert not any(job.work_known for job in unknown)
    assert [job.total_epochs for job in known] == [job.total_epochs for job in wrong]


def test_a_mix_has_jobs_of_both_kinds_and_a_cell_of_one_kind_has_one(data: Path) -> None:
    assert {job.kind for job in build_world(REAL, data).workload.jobs} == {JobKind.PS, JobKind.ALLREDUCE}
    of_one_kind = build_world(replace(REAL, job_kind="allreduce"), data).workload.jobs
    assert {job.kind for job in of_one_kind} == {JobKind.ALLREDUCE}


def test_a_window_begins_at_zero_and_shares_no_job_with_another(data: Path) -> None:
    first, second = (build_world(replace(REAL, window=window), data).workload.jobs for window in (0, 1))
    assert len(first) == len(second) == 40
    assert second[0].submit_time_seconds == 0.0
    assert not {job.job_id for job in first} & {job.job_id for job in second}


def test_a_higher_load_is_fewer_nodes_for_the_same_jobs(data: Path) -> None:
    usual, higher = (build_world(replace(REAL, load=load), data) for load in (0.9, 1.2))
    assert higher.workload == usual.workload
    assert higher.environment.nodes < usual.environment.nodes
    assert usual.environment.nodes == usual.workload.suggested_nodes


def test_no_load_leaves_fewer_gpus_than_the_largest_request(data: Path) -> None:
    workload = build_world(REAL, data).workload
    assert nodes_at_load(workload, default_speeds(), 1e9) == 2


def test_where_distance_costs_tasks_are_packed_onto_larger_nodes(data: Path) -> None:
    world = build_world(replace(REAL, locality=True, capacity=CapacityMode.NODES), data)
    assert world.placement_effect is not None
    assert world.environment.placement is PlacementStrategy.PACK
    assert world.environment.gpus_per_node == 8
    assert build_world(REAL, data).placement_effect is None


def test_clusters_are_known_by_name_and_content(data: Path) -> None:
    (before,) = clusters_in(data)
    file = data / "workloads" / "tiny.csv"
    file.write_text(file.read_text() + "late,90000,60,1\n")
    (after,) = clusters_in(data)
    assert (before.name, before.jobs, after.jobs) == ("tiny", 80, 81)
    assert before.file_digest != after.file_digest
