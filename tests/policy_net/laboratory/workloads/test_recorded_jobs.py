"""Jobs of a decision log: the nodes that there were in the middle of the time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_net.domain import Allocation, ClusterState, Node, Resources
from policy_net.laboratory.logged import LoggedDecision
from policy_net.laboratory.workloads.decided import RecordedJobs, _notes
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob
from policy_net.throughput.parametric import OnlineFit

JOB = WorkloadJob("one", "any", 0.0, 1.0, 1.0, Resources(1), Resources(1), Allocation(1, 1))


def recorded(capacities: dict[tuple[Resources, ...], float]) -> RecordedJobs:
    return RecordedJobs(Workload("w", (JOB,)), 0.0, {}, capacities, OnlineFit(), 300.0, 0.0, 0)


def nodes(gpus: int) -> tuple[Resources, ...]:
    return (Resources(8000, gpus),)


def test_what_there_was_for_the_most_time_in_the_middle_counts() -> None:
    assert recorded({nodes(0): 10.0, nodes(4): 30.0, nodes(8): 10.0}).usual_nodes == nodes(4)
    assert recorded({nodes(8): 60.0, nodes(0): 10.0, nodes(4): 30.0}).usual_nodes == nodes(8)
    assert recorded({nodes(4): 0.0}).usual_nodes == nodes(4), "a log of one moment"


@given(st.dictionaries(st.integers(0, 8), st.floats(0.0, 1e6), min_size=1))
def test_half_of_the_time_there_was_no_more_and_half_of_it_no_less(seconds: dict[int, float]) -> None:
    middle = recorded({nodes(gpus): amount for gpus, amount in seconds.items()}).usual_nodes[0].gpu
    whole = sum(seconds.values())
    assert sum(amount for gpus, amount in seconds.items() if gpus <= middle) >= whole / 2 - 1e-3
    assert sum(amount for gpus, amount in seconds.items() if gpus >= middle) >= whole / 2 - 1e-3


@pytest.mark.parametrize(
    ("cpu_milli", "slot_seconds", "said"),
    [
        (
            1500,
            5.0,
            "1.5 CPU and 2 GPU, every 5 s: say so with --cpus-per-node 2 --gpus-per-node 2 --slot-seconds 5",
        ),
        (
            8000,
            0.5,
            "8 CPU and 2 GPU, every 0.5 s: say so with --cpus-per-node 8 --gpus-per-node 2 --slot-seconds 1",
        ),
    ],
)
def test_the_machines_are_named_as_options_take_them(cpu_milli: int, slot_seconds: float, said: str) -> None:
    state = ClusterState(0.0, (Node("n", Resources(cpu_milli, 2)),), (), slot_seconds)
    assert _notes(1, 0, LoggedDecision(state, {}, ()), 1)[1] == f"decided on 1 node of {said}"
