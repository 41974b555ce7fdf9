"""Sums that can block all nodes: what the arrays come to is what is said of one node and one class at a time."""

import math

from hypothesis import given
from hypothesis import strategies as st

from policy_net.domain import Node, Resources
from policy_net.placement.layout import NodeLayout, blocking_sums, placing_order

CPU_MILLI = st.one_of(st.sampled_from([0, 1000, 2000, 4000]), st.integers(0, 9000))
CAPACITIES = st.lists(st.builds(Resources, CPU_MILLI, st.integers(0, 8)), max_size=8)
CLASSES = st.lists(st.builds(Resources, CPU_MILLI, st.integers(0, 3)), min_size=1, max_size=6)


def blocked_by(capacity: Resources, demand: Resources, before: list[Resources]) -> int:
    """How much of what a class is measured by has to be taken on a node before no task of it fits."""

    def rounded(value: int, units: list[int]) -> int:
        unit = math.gcd(*units) or 1
        return math.ceil(max(value, 0) / unit) * unit

    cpu = rounded(capacity.cpu_milli - demand.cpu_milli + 1, [each.cpu_milli for each in before])
    if not demand.gpu:
        return cpu
    gpu = rounded(capacity.gpu - demand.gpu + 1, [each.gpu for each in before])
    heaviest = max(before, key=lambda each: each.cpu_milli / each.gpu)
    return min(gpu, math.ceil(cpu * heaviest.gpu / heaviest.cpu_milli)) if heaviest.cpu_milli else gpu


@given(CAPACITIES, CLASSES)
def test_a_class_is_blocked_where_every_node_is(capacities: list[Resources], demands: list[Resources]) -> None:
    nodes = tuple(Node(str(number), capacity) for number, capacity in enumerate(capacities))
    classes = tuple(sorted(set(demands), key=placing_order))
    expected = tuple(
        sum(blocked_by(node.capacity, demand, list(classes[: index + 1])) for node in nodes)
        for index, demand in enumerate(classes)
    )
    assert blocking_sums(NodeLayout(nodes), classes) == expected
