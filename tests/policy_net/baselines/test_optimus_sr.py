from speed_tables import Known, room_for, table
from states import make_job

from policy_net.baselines.optimus import OptimusSrPolicy
from policy_net.domain import SUSPENDED, Allocation, Job, Trigger

# At 1+1 both need 1 s a sample; one more PS saves half of it for `a`, one fifth for `b`.
SPEEDS = table(a={(1, 1): 1, (2, 1): 2}, b={(1, 1): 1, (2, 1): 1.25}, dead={(2, 1): 1})


def decide(jobs: list[Job], tasks: int) -> list[Allocation]:
    decision = OptimusSrPolicy(Known(SPEEDS)).decide(room_for(tasks, jobs), Trigger.SLOT)
    return [decision.of(job.job_id) for job in jobs]


def test_the_shortest_job_is_admitted_first() -> None:
    jobs = [make_job(number, "a", remaining_epochs=epochs) for number, epochs in enumerate((300, 100, 200))]
    assert decide(jobs, tasks=4) == [SUSPENDED, Allocation(1, 1), Allocation(1, 1)]


def test_a_larger_share_counts_more_than_more_seconds() -> None:
    jobs = [make_job(0, "b", remaining_epochs=1e6), make_job(1, "a", remaining_epochs=10)]
    assert decide(jobs, tasks=5) == [Allocation(1, 1), Allocation(1, 2)]


def test_a_job_leaves_a_dead_allocation_first_of_all() -> None:
    jobs = [make_job(0, "a", remaining_epochs=10), make_job(1, "dead", remaining_epochs=10)]
    assert decide(jobs, tasks=5) == [Allocation(1, 1), Allocation(1, 2)]


def test_jobs_that_cannot_train_within_their_caps_are_left_out() -> None:
    jobs = [make_job(0, "a", max_ps=0), make_job(1, "a", min_workers=3, max_workers=2), make_job(2, "a")]
    assert decide(jobs, tasks=2) == [SUSPENDED, SUSPENDED, Allocation(1, 1)]


def test_it_needs_no_truth() -> None:
    assert OptimusSrPolicy().name == "optimus-sr"
