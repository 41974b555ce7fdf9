"""Pools of nodes: who can use no others gets no more of them together than there is, and nobody else loses anything."""

from dataclasses import replace

import hypothesis
from hypothesis import given
from hypothesis import strategies as st
from kube_facts import NOW, job

from cluster_agent.backends.kubernetes.pools import limited_to_nodes, pools_of, seats, within_pools
from cluster_agent.backends.kubernetes.sizing import fitted
from policy_net.domain import SUSPENDED, Allocation, ClusterState, Decision, Job, JobKind, Node, Resources

SHAPES = [frozenset(each) for each in ("a", "b", "ab", "bc", "")]


def world(*jobs: Job, **gpus: int) -> ClusterState:
    nodes = tuple(Node(name, Resources(64_000, count)) for name, count in gpus.items())
    return ClusterState(NOW, nodes, jobs, 300.0)


def sizes(found: Decision) -> dict[str, int]:
    return {job_id: each.workers for job_id, each in found.allocation.items()}


def decided(**workers: int) -> Decision:
    return Decision({name: Allocation(size, 0) for name, size in workers.items()})


def test_a_decision_without_confined_jobs_is_the_same() -> None:
    decision = decided(x=4)
    assert within_pools(world(job("x", 1), a=1), decision, {}) is decision


def test_jobs_that_can_use_one_node_share_it_and_others_keep_what_they_were_given() -> None:
    state = world(job("x", 1), job("y", 1), job("free", 1), a=4, b=8)
    found = within_pools(state, decided(x=4, y=3, free=4), {"x": frozenset("a"), "y": frozenset("a")})
    assert sizes(found) == {"x": 2, "y": 2, "free": 4}


def test_what_overlaps_is_counted_together() -> None:
    state = world(job("x", 0), job("y", 0), a=1, b=1, c=1, d=9)
    reach = {"x": frozenset("ab"), "y": frozenset("bc")}
    assert sorted(len(each.jobs) for each in pools_of(state.nodes, reach)) == [1, 1, 2]
    assert sizes(within_pools(state, decided(x=2, y=2), reach)) == {"x": 2, "y": 1}


def test_who_has_nothing_begins_with_its_least_or_not_at_all_and_nobody_loses_what_runs() -> None:
    state = world(job("x", 3), job("y", 0, least=3), a=4, b=9)
    reach = {"x": frozenset("a"), "y": frozenset("a")}
    assert sizes(within_pools(state, decided(x=3, y=4), reach)) == {"x": 3, "y": 0}
    assert sizes(within_pools(state, decided(x=5, y=0), {"x": frozenset(), "y": frozenset()})) == {"x": 3, "y": 0}


def test_a_share_is_not_taken_from_who_has_no_room_that_the_namespace_could_use() -> None:
    poor, rich = job("poor/x", 1), job("rich/y", 4)
    state = world(poor, rich, a=1, b=4)
    wanted = Decision({"poor/x": Allocation(1, 0), "rich/y": Allocation(4, 0)})
    assert fitted(state, wanted, {}, {"poor": 0.6}) == {"poor/x": 3, "rich/y": 2}
    assert fitted(state, wanted, {}, {"poor": 0.6}, {"poor/x": frozenset("a")}) == {"poor/x": 1, "rich/y": 4}


def test_seats_are_counted_node_by_node() -> None:
    assert seats([Resources(3000, 4), Resources(3000, 1), Resources(-1, 4)], Resources(2000, 1)) == 2
    assert seats([Resources(3000, 4)], Resources(1000)) == 3
    assert seats([], Resources(1000)) == 0


@st.composite
def worlds(draw: st.DrawFn) -> tuple[ClusterState, Decision, dict[str, frozenset[str]], dict[str, int]]:
    jobs = []
    for number in range(draw(st.integers(1, 6))):
        most = draw(st.integers(1, 5))
        now, least = draw(st.integers(0, most)), draw(st.integers(1, most))
        jobs.append(job(f"{draw(st.sampled_from('pq'))}/{number}", now, least, most, gpus=draw(st.integers(0, 2))))
    state = world(*jobs, a=draw(st.integers(0, 5)), b=draw(st.integers(0, 5)), c=draw(st.integers(0, 5)))
    wanted = Decision({each.job_id: Allocation(draw(st.integers(0, each.max_workers)), 0) for each in jobs})
    reach = {each.job_id: draw(st.sampled_from(SHAPES)) for each in jobs if draw(st.booleans())}
    fixed = {each.job_id: each.current.workers for each in jobs if draw(st.booleans())}
    return state, wanted, reach, fixed


def holds(state: ClusterState, found: dict[str, int], before: dict[str, int], reach: dict[str, frozenset[str]]) -> None:
    """In every pool: no more than it has, unless there was more before, and then nobody grew who takes of that."""
    demands = {each.job_id: each.worker_demand for each in state.jobs}
    for pool in pools_of(state.nodes, reach):
        used = sum((demands[name] * found[name] for name in pool.jobs), Resources(0))
        for name in pool.jobs:
            if found[name] > before[name]:
                assert demands[name].gpu == 0 or used.gpu <= pool.capacity.gpu
                assert used.cpu_milli <= pool.capacity.cpu_milli


@given(worlds())
@hypothesis.settings(deadline=None, max_examples=400)
def test_whatever_is_decided_no_pool_is_given_more_than_it_has(
    found: tuple[ClusterState, Decision, dict[str, frozenset[str]], dict[str, int]],
) -> None:
    state, wanted, reach, fixed = found
    before = {each.job_id: each.current.workers for each in state.jobs}
    after = sizes(within_pools(state, wanted, reach))
    holds(state, after, before, reach)
    for each in state.jobs:
        asked, size = wanted.of(each.job_id).workers, after[each.job_id]
        assert min(asked, before[each.job_id]) <= size <= asked
        assert size == asked or each.job_id in reach
        assert before[each.job_id] or not size or size >= min(each.min_workers, asked)
    holds(state, fitted(state, wanted, fixed, {"p": 0.3}, reach), before, reach)


def served(name: str, workers: int, ps: int, least: int = 1) -> Job:
    """A job with parameter servers, each as large as a worker."""
    found = job(name, workers, least=least)
    current = Allocation(workers, ps)
    return replace(found, ps_demand=found.worker_demand, max_ps=4, min_ps=1, current=current, kind=JobKind.PS)


def test_parameter_servers_count_where_they_may_be() -> None:
    state = world(served("x", 0, 0), a=3, b=9)
    wanted = Decision({"x": Allocation(3, 2)})
    on_a, on_b = {"x": frozenset("a")}, {"x": frozenset("b")}
    assert within_pools(state, wanted, on_a, on_b) is wanted
    found = within_pools(state, wanted, on_a, on_a).allocation["x"]
    assert found.workers + found.ps == 3
    assert min(found.workers, found.ps) >= 1
    assert within_pools(state, wanted, on_a, {}).allocation["x"] == Allocation(3, 2)


def test_without_room_for_one_role_a_job_does_not_begin_and_what_runs_stays() -> None:
    state = world(served("x", 0, 0, least=3), served("y", 2, 1), a=3, b=9)
    wanted = Decision({"x": Allocation(3, 1), "y": Allocation(2, 1)})
    both = {"x": frozenset("a"), "y": frozenset("b")}
    assert within_pools(state, wanted, both, both).allocation == {"x": SUSPENDED, "y": Allocation(2, 1)}
    nowhere: dict[str, frozenset[str]] = {"x": frozenset(), "y": frozenset()}
    assert within_pools(state, wanted, {}, nowhere).allocation == {"x": SUSPENDED, "y": Allocation(2, 1)}


def test_what_one_role_gives_up_with_the_other_is_there_for_others() -> None:
    """The larger job's servers have no room: what its workers would have taken the smaller one gets."""
    state = world(served("large", 0, 0, least=3), served("small", 0, 0, least=2), a=3, b=1)
    wanted = Decision({"large": Allocation(3, 4), "small": Allocation(2, 1)})
    reach = {"large": frozenset("a"), "small": frozenset("a")}
    servers: dict[str, frozenset[str]] = {"large": frozenset(), "small": frozenset("b")}
    found = within_pools(state, wanted, reach, servers).allocation
    assert found == {"large": SUSPENDED, "small": Allocation(2, 1)}


def test_a_cap_is_what_each_role_s_nodes_hold() -> None:
    offers = {"a": Resources(64_000, 3), "b": Resources(64_000, 9)}
    one = replace(served("x", 0, 0), max_workers=8)
    held = limited_to_nodes(one, offers, {"x": frozenset("a")}, {"x": frozenset("b")})
    assert (held.max_workers, held.max_ps) == (3, 4)
    assert limited_to_nodes(one, offers, {}, {}) is one
    none = limited_to_nodes(one, offers, {}, {"x": frozenset()})
    assert (none.max_workers, none.max_ps, none.min_workers, none.min_ps, none.requested) == (0, 0, 0, 0, SUSPENDED)
    runs = replace(one, current=Allocation(5, 2))
    held = limited_to_nodes(runs, offers, {"x": frozenset("a")}, {"x": frozenset()})
    assert (held.max_workers, held.max_ps) == (5, 2), "what it has it keeps"
