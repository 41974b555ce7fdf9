from speed_tables import Known, room_for, table
from states import make_job

from policy_net.baselines.srtf import SrtfPolicy
from policy_net.domain import SUSPENDED, Allocation, Job, JobKind, Progress, Trigger

SPEEDS = table(a={(1, 1): 1, (1, 2): 2, (2, 2): 3}, slow={(1, 1): 0.1}, alone={(0, 1): 1, (0, 2): 1.5, (0, 3): 1.2})


def decide(jobs: list[Job], tasks: int) -> list[Allocation]:
    decision = SrtfPolicy(Known(SPEEDS)).decide(room_for(tasks, jobs), Trigger.SLOT)
    return [decision.of(job.job_id) for job in jobs]


def test_the_shortest_in_time_goes_first_not_the_shortest_in_epochs() -> None:
    jobs = [make_job(0, "slow", remaining_epochs=100), make_job(1, "a", remaining_epochs=300)]
    assert decide(jobs, tasks=2) == [SUSPENDED, Allocation(1, 1)]


def test_what_is_left_over_goes_to_the_shortest_as_far_as_it_makes_it_faster() -> None:
    jobs = [make_job(0, "a", remaining_epochs=300), make_job(1, "a", remaining_epochs=200)]
    assert decide(jobs, tasks=5) == [Allocation(1, 1), Allocation(2, 1)]
    assert decide(jobs, tasks=7) == [Allocation(2, 1), Allocation(2, 2)]
    assert decide(jobs, tasks=20) == [Allocation(2, 2), Allocation(2, 2)]


def test_everybody_gets_what_was_asked_for_before_anybody_gets_more() -> None:
    jobs = [make_job(0, "a", remaining_epochs=300), make_job(1, "a", remaining_epochs=200)]
    assert decide(jobs, tasks=4) == [Allocation(1, 1), Allocation(1, 1)]


def test_a_job_that_did_not_get_what_it_asked_for_may_still_run_smaller() -> None:
    jobs = [make_job(0, "a", requested=Allocation(4, 1), remaining_epochs=300), make_job(1, "a", remaining_epochs=100)]
    assert decide(jobs, tasks=6) == [Allocation(1, 1), Allocation(2, 2)]


def test_an_all_reduce_job_grows_to_its_peak() -> None:
    job = make_job(0, "alone", kind=JobKind.ALLREDUCE, requested=Allocation(1), max_ps=0, min_ps=0)
    assert decide([job], tasks=10) == [Allocation(2)]


def test_it_learns_speeds_from_progress() -> None:
    policy = SrtfPolicy()
    jobs = [make_job(0, "first", remaining_epochs=200), make_job(1, "second", remaining_epochs=300)]
    assert policy.decide(room_for(2, jobs), Trigger.SLOT).of("job-0").tasks  # nothing known: by work
    for name, speed in (("first", 1.0), ("second", 100.0)):
        policy.observe([Progress("job", name, Allocation(1, 1), 1200.0, 1200.0 * speed, 12.0 * speed, 1e6)])
    assert policy.decide(room_for(2, jobs), Trigger.SLOT).of("job-1").tasks
