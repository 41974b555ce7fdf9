from states import make_job, make_state

from policy_net.baselines.las import LasPolicy
from policy_net.domain import SUSPENDED, Allocation, CapacityMode, Job, Trigger

HOUR = 3600.0


def decide(jobs: list[Job]) -> list[Allocation]:
    """On two nodes: 16 CPU and 4 GPUs."""
    decision = LasPolicy().decide(make_state(jobs, 2, CapacityMode.POOLED), Trigger.SLOT)
    return [decision.of(job.job_id) for job in jobs]


def test_a_job_with_less_attained_service_takes_the_place_of_one_that_runs() -> None:
    asked = Allocation(3, 1)
    jobs = [make_job(0, requested=asked, current=asked, run_seconds=2 * HOUR), make_job(1, requested=asked)]
    assert decide(jobs) == [SUSPENDED, asked]


def test_service_is_counted_in_gpu_seconds() -> None:
    wide, narrow = Allocation(4, 1), Allocation(1, 1)
    # 4 GPUs for half an hour are two GPU-hours: the second queue; one GPU for half an hour is in the first.
    jobs = [make_job(0, requested=wide, run_seconds=HOUR / 2), make_job(1, requested=narrow, run_seconds=HOUR / 2)]
    assert decide(jobs) == [SUSPENDED, narrow]


def test_within_a_queue_the_first_to_come_goes_first_whatever_they_attained() -> None:
    asked = Allocation(3, 1)
    jobs = [make_job(0, requested=asked, run_seconds=1000.0), make_job(1, requested=asked, run_seconds=10.0)]
    assert decide(jobs) == [asked, SUSPENDED]


def test_those_that_do_not_fit_are_passed_over() -> None:
    jobs = [make_job(0, requested=Allocation(3, 1)), make_job(1, requested=Allocation(2, 1)), make_job(2)]
    assert decide(jobs) == [Allocation(3, 1), SUSPENDED, Allocation(1, 1)]
