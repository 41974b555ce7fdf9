from states import CPU_TASK, make_job, make_state

from policy_net.baselines.tetris import TetrisPolicy
from policy_net.domain import SUSPENDED, Allocation, CapacityMode, Job, Trigger


def decide(jobs: list[Job]) -> list[Allocation]:
    """On two nodes: 16 CPU and 4 GPUs. No type was seen, so all speeds are alike."""
    decision = TetrisPolicy().decide(make_state(jobs, 2, CapacityMode.POOLED), Trigger.SLOT)
    return [decision.of(job.job_id) for job in jobs]


def test_of_equal_jobs_the_shorter_goes_first() -> None:
    asked = Allocation(3, 1)
    jobs = [make_job(number, requested=asked, remaining_epochs=epochs) for number, epochs in enumerate((900, 300))]
    assert decide(jobs) == [SUSPENDED, asked]


def test_of_equally_long_jobs_the_one_that_uses_most_of_what_is_free_goes_first() -> None:
    wide, narrow = Allocation(4, 1), Allocation(1, 1)
    # At four workers the wide job has four times the work to do for about the same time.
    jobs = [make_job(0, requested=narrow, remaining_epochs=1), make_job(1, requested=wide, remaining_epochs=1)]
    jobs += [make_job(2, requested=narrow, remaining_epochs=1e6)]
    assert decide(jobs) == [SUSPENDED, wide, SUSPENDED]


def test_all_that_fits_is_started() -> None:
    jobs = [make_job(number, requested=Allocation(1, 1)) for number in range(3)]
    jobs.append(make_job(3, worker_demand=CPU_TASK, requested=Allocation(1, 1)))
    assert decide(jobs) == [Allocation(1, 1)] * 4
