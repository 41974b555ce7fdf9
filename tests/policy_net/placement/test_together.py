"""Placing together: whole nodes for those that lose apart, gaps for the others, and nobody moves who is to stay."""

from hypothesis import given
from hypothesis import strategies as st
from states import CPU_TASK, GPU_WORKER

from policy_net.domain import Allocation, Node, Resources, Share
from policy_net.placement.layout import NodeLayout
from policy_net.placement.together import Placed, place_around, place_together


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


def test_who_cannot_be_moved_grows_where_it_lies_and_then_elsewhere() -> None:
    lies = (Share("n1", Allocation(2, 0)),)
    found = place_around(nodes(8, 4), [job("a", 4), job("b", 5, stays=lies)])
    assert workers_by_node(found["b"]) == {"n1": 4, "n0": 1}
    assert workers_by_node(found["a"]) == {"n0": 4}


def test_what_finds_no_room_around_the_others_has_no_node() -> None:
    lies = (Share("n0", Allocation(5, 0)),)  # more than there is: the cluster knows better
    found = place_around(nodes(4, 2), [job("a", 3), job("b", 5, stays=lies)])
    assert found == {"a": (Share("n1", Allocation(2, 0)),), "b": lies}


def test_jobs_of_other_nodes_take_what_they_have_here() -> None:
    guest = job("guest", 4, stays=(Share("n0", Allocation(3, 0)), Share("elsewhere", Allocation(1, 0))))
    assert place_around(nodes(4), [job("a", 2)], [guest]) == {"a": (Share("n0", Allocation(1, 0)),)}


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4), st.integers(0, 4)), max_size=6),
)
def test_around_those_that_stay_no_task_lies_twice(sizes: list[int], asked: list[tuple[int, int, int]]) -> None:
    layout = nodes(*sizes)
    wanted = []
    for number, (workers, ps, lying) in enumerate(asked):
        stays = (Share(f"n{number % len(sizes)}", Allocation(min(lying, workers), 0)),) if min(lying, workers) else ()
        wanted.append(job(str(number), workers, ps, stays=stays))
    found = place_around(layout, wanted)
    for each in wanted:
        shares = found[each.job_id]
        assert sum(share.allocation.workers for share in shares) <= each.allocation.workers
        assert sum(share.allocation.ps for share in shares) <= each.allocation.ps
        assert len({share.node_id for share in shares}) == len(shares)
        for stay in each.stays:
            here = next(share for share in shares if share.node_id == stay.node_id)
            assert here.allocation.workers >= stay.allocation.workers
