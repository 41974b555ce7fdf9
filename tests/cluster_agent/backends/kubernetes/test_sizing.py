"""Room for jobs that grow: what is free now and promised to nobody, node by node."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kube_facts import facts, member, target

from cluster_agent.backends.kubernetes.observation import Observed, ObservedTarget
from cluster_agent.backends.kubernetes.sizing import SizeChange, UnpromisedCapacity, changes_of, fitting_size
from cluster_agent.kubernetes.capacity import NodeChoice, NodeFacts, PodFacts, Taint
from policy_net.domain import ClusterState

ASKS = {"cpu": 1000, "nvidia.com/gpu": 1, "pods": 1}


def node(name: str = "a", gpus: int = 4, **more: Any) -> NodeFacts:
    found = NodeFacts(
        name, (("cpu", 8000), ("nvidia.com/gpu", gpus), ("pods", 110)), (), is_cordoned=False, gpu_type=""
    )
    return replace(found, **more)


def pod(owner: str = "uid-train", on: str = "a", *, leaves: bool = False) -> PodFacts:
    return PodFacts(on, ASKS, owner, "Running" if on else "Pending", leaves)


def grown(before: int, after: int, name: str = "train", **spec: Any) -> SizeChange:
    return SizeChange(member(before, name, **spec), before, after)


def test_what_pods_have_is_not_free_nor_what_leaving_ones_still_have() -> None:
    free_capacity = UnpromisedCapacity([node()], [pod(), pod("other", leaves=True)], [(facts(1), 1)])
    assert free_capacity.take(facts(1), 3) == 2
    assert free_capacity.take(facts(1), 2) == 2
    assert free_capacity.take(facts(1), 1) == 0


def test_what_was_promised_is_not_free_until_its_pods_have_it() -> None:
    promised = (facts(3, "other"), 3)
    assert UnpromisedCapacity([node()], [], [promised]).take(facts(), 4) == 1
    waiting = UnpromisedCapacity(
        [node()], [pod("uid-other"), pod("uid-other", on=""), pod("uid-other", on="")], [promised]
    )
    assert waiting.take(facts(), 4) == 1
    assert UnpromisedCapacity([node()], [pod("uid-other")] * 3, [promised]).take(facts(), 4) == 1


def test_a_pod_that_leaves_and_is_to_be_replaced_counts_twice() -> None:
    free_capacity = UnpromisedCapacity(
        [node()], [pod("uid-other", leaves=True), pod("uid-other")], [(facts(2, "other"), 2)]
    )
    assert free_capacity.take(facts(), 4) == 1


def test_room_is_coming_while_pods_of_these_jobs_leave_or_are_more_than_they_should_be() -> None:
    assert UnpromisedCapacity([node()], [pod(), pod()], [(facts(1), 1)]).is_coming
    assert UnpromisedCapacity([node()], [pod(), pod(leaves=True)], [(facts(1), 1)]).is_coming
    assert not UnpromisedCapacity([node()], [pod()], [(facts(1), 1)]).is_coming
    assert not UnpromisedCapacity([node()], [pod(), pod("somebody", leaves=True)], [(facts(1), 1)]).is_coming


def test_a_worker_needs_one_node_that_has_all_it_asks_for_and_that_it_may_come_to() -> None:
    halves = [node("a", gpus=1), node("b", gpus=1)]
    two = facts(0, gpus=2)
    assert UnpromisedCapacity(halves, [], []).take(two, 1) == 0
    tainted = node("a", taints=(Taint("gpu", "", "NoSchedule"),))
    assert UnpromisedCapacity([tainted], [], []).take(facts(), 1) == 0
    assert UnpromisedCapacity([tainted], [], []).take(facts(choice=NodeChoice(({"operator": "Exists"},))), 1) == 1
    assert UnpromisedCapacity([node("a", is_cordoned=True), node("b", allocatable=None)], [], []).take(facts(), 1) == 0
    assert UnpromisedCapacity([node()], [], []).take(facts(requests={"unknown.com/device": 1}), 1) == 0
    assert UnpromisedCapacity([node()], [], []).take(facts(requests=None), 1) == 0


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 3), st.booleans()), max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.booleans()), max_size=8),
)
def test_no_room_is_given_twice(gpus: list[int], jobs: list[Any], asked: list[Any]) -> None:
    """What pods have, what was promised and finds a place, and what is given, are together no more than there is."""
    nodes = [node(str(number), each) for number, each in enumerate(gpus)]
    left, pods, holders, promised = list(gpus), [], [], 0
    for number, (most_here, wanted, where, leaves) in enumerate(jobs):
        on = where % len(nodes)
        here = min(most_here, left[on])
        left[on] -= here
        pods += [pod(f"uid-{number}", str(on), leaves=leaves and each == 0) for each in range(here)]
        holders.append((facts(wanted, str(number)), wanted))
        promised += max(0, wanted - here + (leaves and here > 0))
    free_capacity = UnpromisedCapacity(nodes, pods, holders)
    given_now = 0
    for before, more, is_last in asked:
        size = fitting_size(free_capacity, grown(before, before + more, "new"), is_last=is_last)
        assert size in (0, before + more) or (is_last and before < size < before + more)
        given_now += size - before if size else 0
    assert given_now <= max(0, sum(left) - promised)


def test_less_than_all_is_given_only_at_the_last_and_never_below_the_least() -> None:
    def size(*, is_last: bool, **spec: Any) -> int:
        return fitting_size(UnpromisedCapacity([node(gpus=2)], [], []), grown(0, 4, **spec), is_last=is_last)

    assert size(is_last=False) == 0
    assert size(is_last=True) == 2
    assert size(is_last=True, min=2) == 2
    assert size(is_last=True, min=3) == 0


def test_what_gives_room_comes_first_and_then_who_has_nothing() -> None:
    members = {
        each.job_id: each
        for each in (
            member(2, "grows"),
            member(0, "starts"),
            member(4, "shrinks"),
            member(3, "stays"),
            member(2, "zero"),
        )
    }
    about = Observed(ClusterState(0.0, (), (), 300.0), members, {})
    sizes = {"team/grows": 4, "team/starts": 2, "team/shrinks": 1, "team/stays": 3, "team/zero": 0}
    found = [(each.member.job_id, each.before, each.after) for each in changes_of(about, sizes)]
    assert found == [("team/shrinks", 4, 1), ("team/starts", 0, 2), ("team/grows", 2, 4)]


def test_a_change_says_in_words_what_it_is() -> None:
    of = ObservedTarget(target(), facts(), None, None)
    assert SizeChange(of, 0, 3).words == "start with 3"
    assert SizeChange(of, 2, 3).words == "3 workers rather than 2"
