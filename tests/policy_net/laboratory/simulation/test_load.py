"""What replays and recordings held over time."""

import pytest

from policy_net.laboratory.commands.world_options import WorldOptions
from policy_net.laboratory.simulation.metrics import Load, load_of, recorded_load
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import WorkloadOptions

OPTIONS = WorldOptions(seed=1, nodes=4)


def load(timelines: list[list[tuple[float, int, int]]]) -> Load:
    """Generated jobs, whose workers need a GPU each, that held this since their submission."""
    workload = OPTIONS.workload(f"dl2:jobs={len(timelines)}", OPTIONS.speeds())
    timeline = {
        job.job_id: [(job.submit_time_seconds + at, workers, ps) for at, workers, ps in held]
        for job, held in zip(workload.jobs, timelines, strict=True)
    }
    assert {job.worker_demand.gpu for job in workload.jobs} == {1}
    return load_of(workload, OPTIONS.environment(workload).gpus, timeline)


def test_a_job_waits_whenever_it_holds_nothing_until_its_end() -> None:
    found = load([[(60.0, 2, 1), (90.0, 3, 1), (120.0, 0, 0), (150.0, 1, 1), (200.0, 0, 0)]])
    first = found.seconds[0]
    seen = [found.at(first + after) for after in (-1.0, 0.0, 60.0, 90.0, 120.0, 150.0, 200.0, 900.0)]
    assert seen == [(0, 0), (0, 1), (2, 0), (3, 0), (0, 1), (1, 0), (0, 0), (0, 0)]
    assert found.gpus == 8


def test_what_is_noted_before_a_job_came_counts_from_its_submission() -> None:
    found = load([[(-500.0, 2, 1), (100.0, 0, 0)]])
    assert min(found.waiting) == 0
    assert found.at(found.seconds[0]) == (2, 0)


def test_means_over_equal_parts_keep_the_sum() -> None:
    found = Load(8, [10.0, 20.0, 20.0, 30.0, 40.0], [0, 8, 4, 2, 0], [1, 1, 0, 0, 0], [30.0, 40.0])
    used, waiting = found.means(4)
    assert used == pytest.approx([0.0, 0.0, 4.0, 2.0])
    assert waiting == pytest.approx([0.0, 1.0, 0.0, 0.0])
    assert sum(found.means(7)[0]) * 40.0 / 7 == pytest.approx(60.0)


def test_a_recording_is_a_load_where_every_start_is_known(tmp_path) -> None:
    file = tmp_path / "jobs.csv"
    heading = "job_id,submit_time_s,start_time_s,duration_s,num_gpus\n"
    file.write_text(f"{heading}a,0,0,600,1\nb,0,600,600,4\n")
    found = recorded_load(load_workload(str(file), WorkloadOptions()), 2)
    assert found is not None
    assert [found.at(seconds) for seconds in (0.0, 599.0, 600.0, 1199.0, 1200.0)] == [
        (1, 1), (1, 1), (4, 0), (4, 0), (0, 0),
    ]  # fmt: skip
    file.write_text(f"{heading}a,0,0,600,1\nb,0,,600,4\n")
    assert recorded_load(load_workload(str(file), WorkloadOptions()), 2) is None
