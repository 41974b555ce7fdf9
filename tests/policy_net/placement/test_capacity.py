import pytest
from hypothesis import given
from hypothesis import strategies as st
from spread_places import place_spread
from states import CPU_TASK, GPU_WORKER, make_job, make_state

from policy_net.domain import Allocation, CapacityMode, ClusterState, Node, Resources
from policy_net.errors import InvalidAllocation
from policy_net.placement.capacity import open_capacity

DEMANDS = [GPU_WORKER, CPU_TASK, Resources(3000, 2), Resources(500, 0), Resources(4000, 1), Resources(0, 1)]


def cluster(capacities: list[Resources], mode: CapacityMode) -> ClusterState:
    nodes = tuple(Node(f"n{index}", capacity) for index, capacity in enumerate(capacities))
    return ClusterState(0.0, nodes, (), 1200.0, mode)


def places_all(state: ClusterState, tasks: list[Resources]) -> bool:
    """Whether spread, from scratch, finds room for all tasks (one job each)."""
    jobs = tuple(make_job(number, worker_demand=demand) for number, demand in enumerate(tasks))
    with_jobs = ClusterState(0.0, state.nodes, jobs, 1200.0, state.capacity_mode)
    return place_spread(with_jobs, {job.job_id: Allocation(1, 0) for job in jobs})[1] == {}


REQUESTS = st.lists(st.lists(st.sampled_from(DEMANDS), min_size=1, max_size=2), max_size=40)
CLUSTERS = st.lists(st.sampled_from([Resources(8000, 2), Resources(7000, 4), Resources(3000, 0)]), max_size=4)


@given(CLUSTERS, REQUESTS)
def test_on_nodes_a_yes_is_what_spread_can_place_and_a_no_stays_a_no(
    capacities: list[Resources], requests: list[list[Resources]]
) -> None:
    state = cluster(capacities, CapacityMode.NODES)
    capacity = open_capacity(state)
    taken: list[Resources] = []
    refused: list[list[Resources]] = []
    for demands in requests:
        if capacity.fits(*demands):
            capacity.take(*demands)
            taken += demands
            assert places_all(state, taken)
        else:
            assert demands in refused or not places_all(state, taken + demands)
            refused.append(demands)
    assert not any(capacity.fits(*demands) for demands in refused)


@given(CLUSTERS, REQUESTS, st.integers(0, 20), st.sampled_from(list(CapacityMode)))
def test_whole_rounds_are_what_fits_task_by_task(
    capacities: list[Resources], requests: list[list[Resources]], most: int, mode: CapacityMode
) -> None:
    state = cluster(capacities, mode)
    at_once, one_by_one = open_capacity(state), open_capacity(state)
    for capacity in (at_once, one_by_one):
        for demands in requests[:4]:
            if capacity.fits(*demands):
                capacity.take(*demands)
    round_of = requests[4:10]
    rounds = at_once.take_rounds([demand for demands in round_of for demand in demands], most)
    assert 0 <= rounds <= most
    for _ in range(rounds):
        for demands in round_of:
            assert one_by_one.fits(*demands)
            one_by_one.take(*demands)
    for demands in requests:
        assert at_once.fits(*demands) == one_by_one.fits(*demands)


@given(st.integers(0, 6), REQUESTS)
def test_pooled_capacity_is_the_sum_of_the_nodes(nodes: int, requests: list[list[Resources]]) -> None:
    capacity = open_capacity(cluster([Resources(8000, 2)] * nodes, CapacityMode.POOLED))
    left = Resources(8000, 2) * nodes
    for demands in requests:
        wanted = sum(demands, start=Resources(0))
        assert capacity.fits(*demands) == wanted.fits_in(left)
        if capacity.fits(*demands):
            capacity.take(*demands)
            left -= wanted


@given(st.integers(1, 4), st.lists(st.lists(st.sampled_from([GPU_WORKER, CPU_TASK]), min_size=1, max_size=2)))
def test_nodes_and_pool_agree_for_dl2_demands(nodes: int, requests: list[list[Resources]]) -> None:
    placed, pooled = (open_capacity(cluster([Resources(8000, 2)] * nodes, mode)) for mode in CapacityMode)
    for demands in requests:
        assert placed.fits(*demands) == pooled.fits(*demands)
        if placed.fits(*demands):
            placed.take(*demands)
            pooled.take(*demands)


@pytest.mark.parametrize("mode", list(CapacityMode))
def test_a_pair_is_asked_together(mode: CapacityMode) -> None:
    capacity = open_capacity(cluster([Resources(3000, 1)], mode))
    assert capacity.fits(GPU_WORKER)
    assert capacity.fits(CPU_TASK)
    assert not capacity.fits(GPU_WORKER, CPU_TASK)


def test_fragments_count_as_room_only_when_pooled() -> None:
    halves = [Resources(1500, 1), Resources(1500, 1)]
    assert open_capacity(cluster(halves, CapacityMode.POOLED)).fits(GPU_WORKER)
    assert not open_capacity(cluster(halves, CapacityMode.NODES)).fits(GPU_WORKER)


@pytest.mark.parametrize("mode", list(CapacityMode))
def test_taking_what_does_not_fit_is_refused_and_takes_nothing(mode: CapacityMode) -> None:
    capacity = open_capacity(make_state([], nodes=1, mode=mode))
    capacity.take(GPU_WORKER, GPU_WORKER)
    with pytest.raises(InvalidAllocation, match="no capacity left for 2 CPU \\+ 1 GPU and 2 CPU \\+ 0 GPU"):
        capacity.take(GPU_WORKER, CPU_TASK)
    capacity.take(CPU_TASK, CPU_TASK)
    assert not capacity.fits(CPU_TASK)


@pytest.mark.parametrize("mode", list(CapacityMode))
def test_taking_without_asking_first_counts_too(mode: CapacityMode) -> None:
    capacity = open_capacity(make_state([], nodes=1, mode=mode))
    for _ in range(2):
        capacity.take(GPU_WORKER)
        capacity.take(CPU_TASK)
    assert not capacity.fits(CPU_TASK)


@pytest.mark.parametrize("mode", list(CapacityMode))
def test_the_dominant_share_is_the_larger_of_cpu_and_gpu(mode: CapacityMode) -> None:
    capacity = open_capacity(make_state([], nodes=2, mode=mode))  # 16 CPU, 4 GPU
    assert capacity.dominant_share(Resources(4000, 2)) == 0.5
    assert capacity.dominant_share(Resources(12000, 1)) == 0.75
    assert capacity.dominant_share(Resources(0, 0)) == 0.0
