"""Placing together: whole nodes for those that lose apart, gaps for the others, and nobody moves who is to stay."""

from hypothesis import given
from hypothesis import strategies as st
from states import CPU_TASK, GPU_WORKER

from policy_net.domain import Allocation, Node, Resources, Share
from policy_net.placement.layout import NodeLayout
from policy_net.placement.together import Placed, place_together


def nodes(*gpus: int) -> NodeLayout:
    return NodeLayout(tuple(Node(f"n{index}", Resources(4000 * count, count)) for index, count in enumerate(gpus)))


def job(name: str, workers: int, ps: int = 0, **changes: object) -> Placed:
    return Placed(name, GPU_WORKER, CPU_TASK, Allocation(workers, ps), **changes)  # type: ignore[arg-type]


def workers_by_node(shares: tuple[Share, ...]) -> dict[str, int]:
    return {share.node_id: share.allocation.workers for share in shares if share.allocation.workers}


def test_a_job_goes_to_the_fullest_node_that_holds_it_whole() -> None:
    found = place_together(nodes(8, 4, 8), [job("a", 4), job("b", 6)])
    assert found is not None
    assert workers_by_node(found["a"]) == {"n1": 4}
    assert workers_by_node(found["b"]) == {"n0": 6}


def test_who_loses_nothing_apart_fills_gaps() -> None:
    found = place_together(nodes(8, 8), [job("a", 6), job("b", 4, loose=True), job("c", 4)])
    assert found is not None
    assert workers_by_node(found["b"]) == {"n0": 2, "n1": 2}
    assert workers_by_node(found["c"]) == {"n1": 4}


def test_what_fits_no_node_lies_on_the_emptiest() -> None:
    found = place_together(nodes(4, 8), [job("a", 10)])
    assert found is not None
    assert workers_by_node(found["a"]) == {"n0": 2, "n1": 8}


def test_who_stays_keeps_its_nodes_though_it_comes_last() -> None:
    stays = (Share("n0", Allocation(4, 0)),)
    found = place_together(nodes(4, 4), [job("a", 4), job("b", 4, stays=stays)])
    assert found == {"a": (Share("n1", Allocation(4, 0)),), "b": stays}


def test_it_says_so_where_there_is_no_room() -> None:
    assert place_together(nodes(4), [job("a", 5)]) is None
    assert place_together(nodes(4), [job("a", 1), job("b", 4, stays=(Share("n0", Allocation(4, 0)),))]) is None
    assert place_together(nodes(4), [job("a", 1, stays=(Share("gone", Allocation(1, 0)),))]) is None


@given(
    st.lists(st.integers(0, 8), max_size=5),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4), st.booleans()), max_size=6),
)
def test_all_tasks_lie_once_and_no_node_is_too_full(sizes: list[int], asked: list[tuple[int, int, bool]]) -> None:
    layout = nodes(*sizes)
    wanted = [job(str(number), workers, ps, loose=loose) for number, (workers, ps, loose) in enumerate(asked)]
    found = place_together(layout, wanted)
    if found is None:
        return
    used = {node.node_id: Resources(0, 0) for node in layout.nodes}
    for entry in wanted:
        held = [share.allocation for share in found[entry.job_id]]
        assert Allocation(sum(one.workers for one in held), sum(one.ps for one in held)) == entry.allocation
        for share in found[entry.job_id]:
            used[share.node_id] += GPU_WORKER * share.allocation.workers + CPU_TASK * share.allocation.ps
    assert all(used[node.node_id].fits_in(node.capacity) for node in layout.nodes)
