"""What the demo's replays held over time."""

import pytest

from deploy.local.load import MOMENTS, Load, load_of, moments, summed
from policy_net.laboratory.commands.world_options import WorldOptions

OPTIONS = WorldOptions(seed=1, nodes=4)


def load(timelines: list[list[tuple[float, int, int]]]) -> Load:
    """Generated jobs, whose workers need a GPU each, that held this since their submission."""
    workload = OPTIONS.workload(f"dl2:jobs={len(timelines)}", OPTIONS.speeds())
    timeline = {
        job.job_id: [(job.submit_time_seconds + at, workers, ps) for at, workers, ps in held]
        for job, held in zip(workload.jobs, timelines, strict=True)
    }
    assert {job.worker_demand.gpu for job in workload.jobs} == {1}
    return load_of(workload, OPTIONS.environment(workload), timeline)


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


def test_clusters_are_added_up_at_moments_that_they_share() -> None:
    one, other = Load(4, [0.0, 10.0], [3, 0], [1, 0], [10.0]), Load(8, [5.0, 40.0], [5, 0], [2, 0], [40.0])
    at = moments([[one], [one, other]])
    assert (at[0], at[-1], len(at)) == (0.0, 40.0, MOMENTS)
    assert summed([one, other], [0.0, 5.0, 10.0, 40.0]) == [(0.0, 3, 1), (5.0, 8, 3), (10.0, 5, 2), (40.0, 0, 0)]
    assert at[1] == pytest.approx(40.0 / (MOMENTS - 1))


def test_the_last_twentieth_of_the_jobs_does_not_stretch_the_curve() -> None:
    ends = [*map(float, range(1, 20)), 9000.0]
    assert moments([[Load(4, [0.0], [0], [0], ends)]])[-1] == 19.0
