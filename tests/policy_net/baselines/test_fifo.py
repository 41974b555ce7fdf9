import pytest
from states import GPU_WORKER, make_job, make_state

from policy_net.baselines.fifo import build_fifo, build_fifo_backfill
from policy_net.domain import SUSPENDED, Allocation, CapacityMode, Job, JobKind, PolicyContext, Trigger

# Two nodes of the states module have 16 CPU and 4 GPUs: 4 GPU workers with as many servers.
SMALL, LARGE = Allocation(1, 1), Allocation(3, 1)


def decide(
    jobs: list[Job], *, backfill: bool = False, nodes: int = 2, mode: CapacityMode = CapacityMode.POOLED
) -> list:
    policy = (build_fifo_backfill if backfill else build_fifo)(PolicyContext())
    decision = policy.decide(make_state(jobs, nodes, mode), Trigger.ARRIVAL)
    return [decision.of(job.job_id) for job in jobs]


@pytest.mark.parametrize("mode", CapacityMode)
def test_jobs_get_what_they_asked_for_by_arrival(mode: CapacityMode) -> None:
    jobs = [make_job(0, requested=Allocation(2, 1)), make_job(1, requested=SMALL)]
    assert decide(jobs, mode=mode) == [Allocation(2, 1), SMALL]


def test_a_job_that_does_not_fit_holds_up_all_others() -> None:
    jobs = [make_job(0, requested=Allocation(2, 1)), make_job(1, requested=LARGE), make_job(2, requested=SMALL)]
    assert decide(jobs) == [Allocation(2, 1), SUSPENDED, SUSPENDED]


def test_with_backfill_later_jobs_pass_it() -> None:
    jobs = [make_job(0, requested=Allocation(2, 1)), make_job(1, requested=LARGE), make_job(2, requested=SMALL)]
    assert decide(jobs, backfill=True) == [Allocation(2, 1), SUSPENDED, SMALL]


@pytest.mark.parametrize("backfill", [False, True])
def test_what_runs_keeps_running_even_before_those_that_came_first(backfill: bool) -> None:
    jobs = [make_job(0, requested=LARGE), make_job(1, requested=Allocation(2, 1), current=Allocation(2, 1))]
    assert decide(jobs, backfill=backfill) == [SUSPENDED, Allocation(2, 1)]


def test_where_nodes_were_lost_the_last_to_come_waits_again() -> None:
    jobs = [make_job(number, requested=Allocation(2, 1), current=Allocation(2, 1)) for number in range(2)]
    assert decide(jobs, nodes=1) == [Allocation(2, 1), SUSPENDED]


def test_a_request_beyond_the_cluster_is_cut_and_does_not_block_for_ever() -> None:
    jobs = [make_job(0, requested=Allocation(16, 16)), make_job(1, requested=SMALL)]
    assert decide(jobs) == [Allocation(4, 4), SUSPENDED]


def test_a_job_that_fits_nowhere_is_left_out_of_the_queue() -> None:
    jobs = [make_job(0, worker_demand=GPU_WORKER * 5), make_job(1)]
    assert decide(jobs) == [SUSPENDED, SMALL]


def test_all_reduce_jobs_get_workers_only() -> None:
    job = make_job(0, kind=JobKind.ALLREDUCE, requested=Allocation(3), max_ps=0, min_ps=0)
    assert decide([job]) == [Allocation(3)]
