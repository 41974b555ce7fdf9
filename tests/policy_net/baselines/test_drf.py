from states import CPU_TASK, GPU_WORKER, make_job, make_state

from policy_net.baselines.drf import DrfPolicy
from policy_net.domain import Allocation, CapacityMode, JobKind, Resources, Trigger


def decide(jobs: list, nodes: int = 2) -> list[Allocation]:
    state = make_state(jobs, nodes=nodes, mode=CapacityMode.POOLED)
    decision = DrfPolicy().decide(state, Trigger.SLOT)
    return [decision.of(job.job_id) for job in jobs]


def test_bundles_go_round_by_arrival() -> None:
    # Two nodes: 8 tasks of 2 CPU and 4 GPUs, so 4 bundles for 3 jobs; the first to arrive gets the odd one.
    assert decide([make_job(number) for number in range(3)]) == [Allocation(2, 2), Allocation(1, 1), Allocation(1, 1)]


def test_a_job_that_no_longer_fits_is_passed_over_and_the_others_go_on() -> None:
    large = make_job(0, worker_demand=Resources(2000, 3))
    small = make_job(1, worker_demand=CPU_TASK)
    # 3 of 4 GPUs go to the first bundle; the second of that kind does not fit, the CPU-only job takes what is left.
    assert decide([large, small]) == [Allocation(1, 1), Allocation(3, 3)]


def test_the_smaller_cap_of_both_roles_ends_a_job() -> None:
    jobs = [make_job(0, max_workers=1), make_job(1, max_ps=2), make_job(2, max_ps=0)]
    assert decide(jobs, nodes=10) == [Allocation(1, 1), Allocation(2, 2), Allocation(0, 0)]


def test_later_jobs_wait_when_the_cluster_is_full() -> None:
    jobs = [make_job(number, worker_demand=GPU_WORKER) for number in range(7)]
    assert decide(jobs) == [Allocation(1, 1)] * 4 + [Allocation(0, 0)] * 3


def test_all_reduce_jobs_take_a_worker_a_round_and_no_server() -> None:
    alone = make_job(0, kind=JobKind.ALLREDUCE, max_ps=0, min_ps=0)
    assert decide([alone, make_job(1)]) == [Allocation(2, 0), Allocation(2, 2)]
    assert decide([make_job(0, kind=JobKind.ALLREDUCE, max_workers=3, max_ps=0, min_ps=0)]) == [Allocation(3, 0)]


def test_a_first_grant_is_the_minimum_or_nothing() -> None:
    # 4 GPUs: two workers and a server at first, then a bundle each in turns.
    assert decide([make_job(0, min_workers=2), make_job(1)]) == [Allocation(2, 1), Allocation(2, 2)]
    assert decide([make_job(0, min_workers=5), make_job(1)]) == [Allocation(0, 0), Allocation(4, 4)]
    assert decide([make_job(0, min_ps=3)]) == [Allocation(3, 5)]


def test_who_starts_with_more_waits_until_the_others_have_as_much() -> None:
    jobs = [make_job(0, min_workers=3, worker_demand=CPU_TASK), make_job(1, worker_demand=CPU_TASK)]
    # 12 tasks: 3+1, then the other up to 3+3 (six), then the first again: 4+2.
    assert decide(jobs, nodes=3) == [Allocation(4, 2), Allocation(3, 3)]


def test_a_minimum_beyond_the_caps_gets_nothing() -> None:
    assert (
        decide([make_job(0, min_workers=3, max_workers=2), make_job(1, min_ps=2, max_ps=1)]) == [Allocation(0, 0)] * 2
    )
