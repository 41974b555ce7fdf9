import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_net.domain import Allocation
from policy_net.laboratory.catalogue import CATALOGUE
from policy_net.laboratory.workloads.recorded import ClusterSize, GpuRequest, clipped_gpu_load, nodes_for


def test_load_counts_each_job_up_to_the_last_submission() -> None:
    requests = [GpuRequest(0, 500, 2), GpuRequest(60, 20, 4), GpuRequest(100, 9999, 16)]
    # in 100 s: 2 GPUs for 100 s, 4 GPUs for 20 s, and nothing of the job that is submitted last
    assert clipped_gpu_load(requests) == pytest.approx((2 * 100 + 4 * 20) / 100)


def test_jobs_that_all_come_at_once_give_no_load_but_room_for_the_largest() -> None:
    requests = [GpuRequest(5, 100, 3), GpuRequest(5, 100, 7)]
    assert clipped_gpu_load(requests) == 0
    assert nodes_for(requests, 0.0, gpus_per_node=2) == 4


def test_nodes_hold_the_load_at_nine_tenths() -> None:
    assert nodes_for([GpuRequest(0, 1, 1)], 18.0, gpus_per_node=2) == 10
    assert nodes_for([GpuRequest(0, 1, 1)], 18.1, gpus_per_node=2) == 11
    assert nodes_for([GpuRequest(0, 1, 1)], 18.0, gpus_per_node=8) == 3


requests = st.lists(
    st.builds(GpuRequest, st.floats(0, 1e6), st.floats(1e-3, 1e6), st.integers(1, 16)), min_size=1, max_size=30
)


@given(requests)
def test_load_never_exceeds_what_was_asked_for(many: list[GpuRequest]) -> None:
    assert 0 <= clipped_gpu_load(many) <= sum(request.gpus for request in many) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("nodes", "gpus", "cpus", "model", "allocation", "holds"),
    [
        (8, 2, 8, "wlm", Allocation(16, 16), True),
        (8, 2, 8, "wlm", Allocation(16, 17), False),  # 4 tasks a node
        (7, 2, 8, "wlm", Allocation(16, 1), False),  # 14 GPUs
        (2, 8, 8, "wlm", Allocation(16, 1), False),  # 16 GPUs, CPU for 8 workers
        (2, 8, 16, "wlm", Allocation(16, 1), False),  # CPU for the workers alone
        (1, 2, 3, "wlm", Allocation(1, 1), False),  # 3 CPU hold one task of 2
        (2, 2, 3, "wlm", Allocation(1, 1), True),
        (1, 2, 8, "dssm", Allocation(3, 1), True),  # no GPU needed
    ],
)
def test_an_empty_cluster_holds_a_job_or_not(nodes, gpus, cpus, model, allocation, holds) -> None:
    assert ClusterSize(nodes, gpus, cpus).holds(CATALOGUE[model], allocation) is holds
