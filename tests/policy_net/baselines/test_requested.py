import pytest
from hypothesis import given
from hypothesis import strategies as st
from states import CPU_TASK, GPU_WORKER, make_job, make_state

from policy_net.baselines.decision_capacity import RequestedSizes
from policy_net.baselines.needs import demands_of
from policy_net.domain import SUSPENDED, Allocation, CapacityMode, Job, JobKind
from policy_net.placement.capacity import open_capacity


def size(job: Job, nodes: int = 2, mode: CapacityMode = CapacityMode.POOLED) -> Allocation:
    (only,) = RequestedSizes().of(make_state([job], nodes, mode))
    return only


def test_a_request_that_fits_is_kept() -> None:
    assert size(make_job(0, requested=Allocation(2, 3))) == Allocation(2, 3)


def test_a_request_is_kept_within_caps_and_minimum() -> None:
    assert size(make_job(0, requested=Allocation(9, 1), max_workers=3, min_ps=2)) == Allocation(3, 2)


def test_too_large_a_request_loses_workers_and_servers_in_proportion() -> None:
    # 16 CPU hold 8 tasks: 8 + 4 becomes 4 + 2, as the 4 GPUs allow; 8 + 16 becomes 2 + 4, as the CPUs do.
    assert size(make_job(0, requested=Allocation(8, 4))) == Allocation(4, 2)
    assert size(make_job(0, requested=Allocation(8, 16))) == Allocation(2, 4)


def test_a_job_whose_minimum_is_too_large_has_no_size() -> None:
    assert size(make_job(0, requested=Allocation(8, 1), min_workers=5)) == SUSPENDED
    assert size(make_job(0, max_workers=2, min_workers=3)) == SUSPENDED


def test_sizes_follow_the_nodes() -> None:
    sizes, job = RequestedSizes(), make_job(0, requested=Allocation(6, 1))
    assert [sizes.of(make_state([job], nodes))[0].workers for nodes in (1, 2, 3, 2)] == [2, 4, 6, 4]


@given(
    requested=st.tuples(st.integers(0, 16), st.integers(0, 16)),
    minimum=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    nodes=st.integers(0, 6),
    mode=st.sampled_from(CapacityMode),
    demand=st.sampled_from([GPU_WORKER, CPU_TASK]),
)
def test_a_size_trains_and_fits_the_empty_cluster_or_is_nothing(
    requested: tuple[int, int], minimum: tuple[int, int], nodes: int, mode: CapacityMode, demand: object
) -> None:
    job = make_job(0, requested=Allocation(*requested), min_workers=minimum[0], min_ps=minimum[1], worker_demand=demand)
    given_size = size(job, nodes, mode)
    capacity = open_capacity(make_state([job], nodes, mode))
    least_fits = capacity.fits(*demands_of(job, job.smallest))
    if given_size == SUSPENDED:
        assert not least_fits
    else:
        assert job.can_train(given_size)
        assert capacity.fits(*demands_of(job, given_size))


@pytest.mark.parametrize("workers", [1, 5, 16])
def test_all_reduce_requests_are_cut_without_servers(workers: int) -> None:
    job = make_job(0, kind=JobKind.ALLREDUCE, requested=Allocation(workers), max_ps=0, min_ps=0)
    assert size(job) == Allocation(min(workers, 4))
