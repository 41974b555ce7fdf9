from hypothesis import given
from hypothesis import strategies as st
from spread_places import place_spread
from states import CPU_TASK, GPU_WORKER, make_job, make_state

from policy_net.domain import Allocation, Node, Resources, Share
from policy_net.placement.layout import NodeLayout, VolumeBound, layout_of, placing_order
from policy_net.placement.spread import fill

DEMANDS = st.builds(Resources, st.integers(0, 5).map(lambda cpu: cpu * 500), st.integers(0, 2))
NODES = st.lists(st.builds(Resources, st.integers(0, 16).map(lambda cpu: cpu * 500), st.integers(0, 4)), max_size=6)
CLASSES = st.dictionaries(DEMANDS, st.integers(1, 20), min_size=1, max_size=4)


def layout(capacities: list[Resources]) -> NodeLayout:
    return NodeLayout(tuple(Node(f"n{index}", capacity) for index, capacity in enumerate(capacities)))


def place_one_by_one(capacities: list[Resources], classes: list[tuple[Resources, int]]) -> list[list[int]]:
    """The definition: each task to the least loaded node that can hold it, the first one among equals."""
    free = list(capacities)
    placed = []
    for demand, count in classes:
        chosen = []
        for _ in range(count):
            able = [index for index, left in enumerate(free) if demand.fits_in(left)]
            if not able:
                break

            def load(index: int, by_gpu: bool = demand.gpu > 0) -> float:
                whole, left = capacities[index], free[index]
                used, total = (
                    (whole.gpu - left.gpu, whole.gpu) if by_gpu else (whole.cpu_milli - left.cpu_milli, whole.cpu_milli)
                )
                return used / max(total, 1)

            best = min(able, key=lambda index: (load(index), index))
            free[best] -= demand
            chosen.append(best)
        placed.append(chosen)
    return placed


@given(NODES, CLASSES)
def test_placing_a_class_at_once_uses_the_same_nodes_as_placing_task_by_task(
    capacities: list[Resources], classes: dict[Resources, int]
) -> None:
    ordered = [(demand, classes[demand]) for demand in sorted(classes, key=placing_order)]
    at_once = fill(layout(capacities), ordered)
    for chosen, expected in zip(at_once, place_one_by_one(capacities, ordered), strict=True):
        assert sorted(chosen.tolist()) == sorted(expected)


@given(NODES, CLASSES)
def test_no_node_ever_holds_more_than_it_has(capacities: list[Resources], classes: dict[Resources, int]) -> None:
    ordered = [(demand, classes[demand]) for demand in sorted(classes, key=placing_order)]
    used = [Resources(0, 0)] * len(capacities)
    for (demand, _), chosen in zip(ordered, fill(layout(capacities), ordered), strict=True):
        for node in chosen.tolist():
            used[node] += demand
    assert all(amount.fits_in(capacity) for amount, capacity in zip(used, capacities, strict=True))


@given(NODES, CLASSES)
def test_what_the_volume_bound_proves_can_be_placed(capacities: list[Resources], classes: dict[Resources, int]) -> None:
    nodes = layout(capacities)
    bound = VolumeBound(nodes, tuple(classes))
    for demand, count in classes.items():
        bound.add(demand, count)
    if bound.spare(()) >= 0:
        ordered = [(demand, classes[demand]) for demand in sorted(classes, key=placing_order)]
        assert [len(chosen) for chosen in fill(nodes, ordered)] == [count for _, count in ordered]


@given(st.integers(1, 8), st.integers(0, 20), st.integers(0, 40))
def test_gpu_workers_first_loses_nothing_against_pooled_capacity_for_dl2_demands(
    nodes: int, gpu_workers: int, cpu_tasks: int
) -> None:
    fits_pooled = gpu_workers <= 2 * nodes and gpu_workers + cpu_tasks <= 4 * nodes
    cluster = layout([Resources(8000, 2)] * nodes)
    placed = fill(cluster, [(GPU_WORKER, gpu_workers), (CPU_TASK, cpu_tasks)])
    assert ([len(chosen) for chosen in placed] == [gpu_workers, cpu_tasks]) == fits_pooled
    bound = VolumeBound(cluster, (GPU_WORKER, CPU_TASK))
    bound.add(GPU_WORKER, gpu_workers)
    bound.add(CPU_TASK, cpu_tasks)
    assert (bound.spare(()) >= 0) == fits_pooled  # exact here, so replays need no placing


def test_tasks_are_spread_and_ties_go_to_the_first_node() -> None:
    state = make_state([make_job(0), make_job(1)], nodes=3)
    placement, unplaced = place_spread(state, {"job-0": Allocation(2, 1), "job-1": Allocation(1, 1)})
    assert unplaced == {}
    # Workers go to n0, n1, n2; all nodes are then equal again, so PSs go to n0, n1.
    assert placement["job-0"] == (Share("n0", Allocation(1, 1)), Share("n1", Allocation(1, 0)))
    assert placement["job-1"] == (Share("n1", Allocation(0, 1)), Share("n2", Allocation(1, 0)))


def test_what_no_node_has_room_for_is_reported_for_the_last_jobs() -> None:
    state = make_state([make_job(0), make_job(1)], nodes=1)
    placement, unplaced = place_spread(state, {"job-0": Allocation(2, 1), "job-1": Allocation(1, 2)})
    assert placement["job-0"] == (Share("n0", Allocation(2, 1)),)
    assert placement["job-1"] == (Share("n0", Allocation(0, 1)),)
    assert unplaced == {"job-1": Allocation(1, 1)}


def test_a_suspended_job_has_no_place() -> None:
    state = make_state([make_job(0)])
    assert place_spread(state, {"job-0": Allocation(0, 0)}) == ({}, {})


def test_layouts_are_kept_per_node_tuple_not_mixed_up() -> None:
    small, large = make_state([], nodes=1).nodes, make_state([], nodes=2).nodes
    assert [layout_of(nodes).total.gpu for nodes in (small, large, small, large)] == [2, 4, 2, 4]
