from hypothesis import given
from hypothesis import strategies as st

from policy_net.domain import Allocation, Node, Resources, Share
from policy_net.placement.layout import layout_of, placing_order
from policy_net.placement.pack import PackPlan
from policy_net.placement.spread import SpreadPlan, TaskRequest

GPU, CPU = Resources(2000, 1), Resources(2000, 0)


def cluster(*gpus: int, cpu_milli: int = 16000) -> tuple[Node, ...]:
    return tuple(Node(f"n{index}", Resources(cpu_milli, count)) for index, count in enumerate(gpus))


def pack(nodes: tuple[Node, ...], **tasks: tuple[int, int]) -> PackPlan:
    return PackPlan(layout_of(nodes), [(job_id, GPU, CPU, Allocation(*held)) for job_id, held in tasks.items()])


def test_a_jobs_workers_go_to_one_node_the_one_they_fill_best() -> None:
    plan = pack(cluster(4, 2, 8), small=(2, 0), middle=(3, 0))
    assert plan.shares == {"small": (Share("n1", Allocation(2, 0)),), "middle": (Share("n0", Allocation(3, 0)),)}


def test_a_job_larger_than_any_node_takes_the_emptiest_first_and_the_rest_goes_where_it_fits_best() -> None:
    plan = pack(cluster(2, 4, 4, 1), large=(9, 0))
    assert plan.shares["large"] == (
        Share("n1", Allocation(4, 0)),
        Share("n2", Allocation(4, 0)),
        Share("n3", Allocation(1, 0)),
    )


def test_larger_jobs_choose_before_smaller_ones_and_parameter_servers_come_last() -> None:
    plan = pack(cluster(4, 4, cpu_milli=8000), small=(1, 0), large=(4, 3))
    assert plan.shares["large"] == (Share("n0", Allocation(4, 0)), Share("n1", Allocation(0, 3)))
    assert plan.shares["small"] == (Share("n1", Allocation(1, 0)),)


def test_what_cannot_be_packed_is_spread() -> None:
    # Packing puts both small workers beside each other, after which no node has CPU for the large server.
    nodes = (Node("n0", Resources(4000, 2)), Node("n1", Resources(4000, 2)))
    large_server = Resources(3000, 0)
    wanted = [("a", Resources(1000, 1), CPU, Allocation(2, 0)), ("b", GPU, large_server, Allocation(0, 2))]
    plan, spread = PackPlan(layout_of(nodes), wanted), SpreadPlan(layout_of(nodes), wanted)
    assert spread.unplaced == plan.unplaced == {}
    assert plan.shares == spread.shares


DEMANDS = st.sampled_from([GPU, CPU, Resources(3000, 2), Resources(1000, 0), Resources(500, 1)])
WANTED = st.lists(
    st.tuples(DEMANDS, DEMANDS, st.builds(Allocation, st.integers(0, 6), st.integers(0, 6))), max_size=8
).map(lambda rows: [(f"job-{index}", *row) for index, row in enumerate(rows)])
NODES = st.lists(
    st.builds(Resources, st.sampled_from([4000, 8000, 16000]), st.integers(0, 8)), min_size=1, max_size=6
).map(lambda sizes: tuple(Node(f"n{index}", size) for index, size in enumerate(sizes)))


@given(NODES, WANTED)
def test_pack_places_everything_that_spread_places_and_no_node_holds_too_much(
    nodes: tuple[Node, ...], wanted: list[TaskRequest]
) -> None:
    plan, spread = PackPlan(layout_of(nodes), wanted), SpreadPlan(layout_of(nodes), wanted)
    assert plan.unplaced == spread.unplaced
    used = {node.node_id: Resources(0) for node in nodes}
    for job_id, worker, ps, held in wanted:
        shares = plan.shares.get(job_id, ())
        lacking = plan.unplaced.get(job_id, Allocation())
        assert sum(share.allocation.workers for share in shares) == held.workers - lacking.workers
        assert sum(share.allocation.ps for share in shares) == held.ps - lacking.ps
        for share in shares:
            used[share.node_id] += worker * share.allocation.workers + ps * share.allocation.ps
    assert all(used[node.node_id].fits_in(node.capacity) for node in nodes)


def plainly(nodes: tuple[Node, ...], wanted: list[TaskRequest]) -> dict[tuple[str, int], dict[int, int]] | None:
    """The rule of the module's docstring, node by node; None if some task finds no room."""
    free = [node.capacity for node in nodes]
    found: dict[tuple[str, int], dict[int, int]] = {}
    pieces = [(job_id, 0, worker, held.workers) for job_id, worker, _, held in wanted]
    pieces += [(job_id, 1, ps, held.ps) for job_id, _, ps, held in wanted]
    for job_id, role, demand, count in sorted(pieces, key=lambda piece: (*placing_order(piece[2]), -piece[3])):
        left = count
        while left:
            capacities = [
                next(n for n in range(left, -1, -1) if (demand * n).fits_in(free_capacity)) for free_capacity in free
            ]
            short = [free_capacity.gpu if demand.gpu else free_capacity.cpu_milli for free_capacity in free]
            node = min(
                range(len(free)),
                key=lambda n: (capacities[n] < left, short[n] if capacities[n] == left else -capacities[n], n),
            )
            if not capacities[node]:
                return None
            free[node] -= demand * capacities[node]
            found.setdefault((job_id, role), {})[node] = capacities[node]
            left -= capacities[node]
    return found


MANY_NODES = st.lists(
    st.builds(Resources, st.sampled_from([4000, 6000, 16000]), st.integers(0, 4)), min_size=1, max_size=12
).map(lambda sizes: tuple(Node(f"n{index}", size) for index, size in enumerate(sizes)))


@given(MANY_NODES, WANTED)
def test_nodes_that_are_alike_are_looked_at_once_and_chosen_as_if_each_were(
    nodes: tuple[Node, ...], wanted: list[TaskRequest]
) -> None:
    plan, expected = PackPlan(layout_of(nodes), wanted), plainly(nodes, wanted)
    if plan.unplaced or expected is None:
        assert plan.shares == SpreadPlan(layout_of(nodes), wanted).shares
        return
    found = {
        (job_id, role): {
            nodes.index(node): count
            for node, share in ((next(n for n in nodes if n.node_id == s.node_id), s) for s in shares)
            if (count := (share.allocation.workers, share.allocation.ps)[role])
        }
        for job_id, shares in plan.shares.items()
        for role in (0, 1)
    }
    assert {key: places for key, places in found.items() if places} == expected
