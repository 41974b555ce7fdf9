import pytest
from speed_tables import room_for, table
from states import make_job, make_state

from policy_net.baselines.optimus import OptimusPolicy, build_optimus, build_optimus_true_table
from policy_net.domain import Allocation, Job, JobKind, PolicyContext, Progress, SpeedModel, Trigger
from policy_net.errors import BadInput
from policy_net.laboratory.speeds.speed import default_speeds


def decide(speeds: SpeedModel, jobs: list[Job], tasks: int) -> list[Allocation]:
    decision = OptimusPolicy("optimus", speeds).decide(room_for(tasks, jobs), Trigger.SLOT)
    return [decision.of(job.job_id) for job in jobs]


# At 1+1 both need 1 s a sample; one more PS saves half of it for `a`, one fifth for `b`.
SPEEDS = table(a={(1, 1): 1, (2, 1): 2}, b={(1, 1): 1, (2, 1): 1.25})


def test_the_next_task_goes_where_it_saves_most_remaining_time() -> None:
    jobs = [make_job(0, "b", remaining_epochs=200), make_job(1, "a", remaining_epochs=100)]
    assert decide(SPEEDS, jobs, tasks=5) == [Allocation(1, 1), Allocation(1, 2)]  # 0.2 × 200 < 0.5 × 100
    jobs = [make_job(0, "b", remaining_epochs=300), make_job(1, "a", remaining_epochs=100)]
    assert decide(SPEEDS, jobs, tasks=5) == [Allocation(1, 2), Allocation(1, 1)]  # 0.2 × 300 > 0.5 × 100


def test_growth_starts_from_the_minimum() -> None:
    speeds = table(a={(1, 1): 1, (1, 3): 3, (1, 4): 4})
    assert decide(speeds, [make_job(0, "a", min_workers=3)], tasks=10) == [Allocation(4, 1)]
    assert decide(speeds, [make_job(0, "a", min_workers=3)], tasks=3) == [Allocation(0, 0)]


def test_all_reduce_jobs_grow_in_workers_until_they_peak() -> None:
    speeds = table(a={(0, 1): 1, (0, 2): 1.8, (0, 3): 1.7})
    job = make_job(0, "a", kind=JobKind.ALLREDUCE, max_ps=0, min_ps=0)
    assert decide(speeds, [job], tasks=10) == [Allocation(2, 0)]


def test_room_that_saves_nobody_time_is_left_empty() -> None:
    assert decide(SPEEDS, [make_job(0, "a")], tasks=20) == [Allocation(1, 2)]


def test_bundles_go_by_arrival_and_the_rest_wait() -> None:
    jobs = [make_job(number, "a") for number in range(4)]
    assert decide(SPEEDS, jobs, tasks=5) == [Allocation(1, 2), Allocation(1, 1), Allocation(0, 0), Allocation(0, 0)]


def test_it_stops_where_a_single_task_brings_nothing_as_published() -> None:
    two_apart = table(a={(1, 1): 1, (2, 1): 1, (2, 2): 4, (1, 2): 1})
    assert decide(two_apart, [make_job(0, "a")], tasks=10) == [Allocation(1, 1)]


def test_a_job_leaves_a_dead_allocation_first_of_all() -> None:
    dead_start = table(a={(1, 1): 1, (2, 1): 2}, dead={(2, 1): 1})
    jobs = [make_job(0, "a"), make_job(1, "dead")]
    assert decide(dead_start, jobs, tasks=5) == [Allocation(1, 1), Allocation(1, 2)]


def test_a_role_that_no_longer_fits_leaves_the_other_to_grow() -> None:
    speeds = table(a={(1, 1): 1, (1, 2): 4, (2, 1): 2})
    state = make_state([make_job(0, "a", worker_demand=make_job(0).worker_demand * 2)], nodes=1)  # both GPUs taken
    decision = OptimusPolicy("optimus", speeds).decide(state, Trigger.SLOT)
    assert decision.of("job-0") == Allocation(workers=1, ps=2)


def test_caps_end_growth_even_beyond_the_grid() -> None:
    jobs = [make_job(0, "resnet-50", max_workers=30, max_ps=3)]
    (given,) = decide(default_speeds(), jobs, tasks=60)
    assert given.ps <= 3
    assert given.workers <= 16


def test_the_true_table_is_refused_outside_simulations() -> None:
    with pytest.raises(BadInput, match=r"optimus-true-table.*true speeds.*use optimus or marginal"):
        build_optimus_true_table(PolicyContext())


def test_on_beliefs_it_needs_no_truth_and_learns_to_grow_what_grows() -> None:
    policy = build_optimus(PolicyContext())
    truth = default_speeds()
    jobs = [make_job(0, "vgg-16", remaining_epochs=1e6)]
    for _ in range(12):
        held = policy.decide(room_for(100, jobs), Trigger.SLOT).of("job-0")
        speed = truth.samples_per_second("vgg-16", held.ps, held.workers)
        policy.observe([Progress("job-0", "vgg-16", held, 1200.0, speed * 1200.0, speed * 12.0, 1e6)])
    assert speed >= 0.9 * truth.grid("vgg-16").max()
