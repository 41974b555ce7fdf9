"""Clusters whose nodes differ from the beginning, and replays that end with one job."""

from __future__ import annotations

from dataclasses import replace

import pytest

import policy_net.baselines  # noqa: F401  (registers the policies' names)
from policy_net.domain import Allocation, JobKind, PolicyContext, Resources
from policy_net.errors import BadInput
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob
from policy_net.policy import build_policy
from policy_net.throughput.parametric import OnlineFit

SIZES = (Resources(2000, 1), Resources(8000, 4))


def job(name: str, workers: int, gpu: int = 1, epochs: float = 1000.0) -> WorkloadJob:
    return WorkloadJob(
        name, "any", 0.0, epochs, 1.0, Resources(1000, gpu), Resources(0), Allocation(workers, 0),
        kind=JobKind.ALLREDUCE, max_ps=0, min_ps=0,
    )  # fmt: skip


class AllReduce(OnlineFit):
    def __init__(self) -> None:
        super().__init__()
        self._kinds["any"] = JobKind.ALLREDUCE


def run(*jobs: WorkloadJob, until: str | None = None, compiled: bool = True) -> dict[str, float | None]:
    environment = Environment(nodes=2, node_sizes=SIZES, decide_on=DecideOn.EVENT)
    policy = build_policy("fifo-backfill", PolicyContext())
    found = replay(Workload("w", jobs), environment, policy, AllReduce(), until_done=until, compiled=compiled)
    return {outcome.job_id: outcome.end_seconds for outcome in found.outcomes}


def test_each_node_has_its_own_size() -> None:
    environment = Environment(nodes=2, node_sizes=SIZES)
    assert [node.capacity for node in environment.node_list] == list(SIZES)
    assert environment.gpus == 5
    ends = run(job("large", 1, gpu=4), job("small", 1))
    assert ends["large"] == ends["small"], "one on each node, at the same time"


def test_what_no_node_has_room_for_is_refused() -> None:
    with pytest.raises(BadInput, match=r"never fits: .* need more than 2 node\(s\) with 5 GPU in all have"):
        run(job("large", 1, gpu=5))
    with pytest.raises(BadInput, match="node_sizes are of 2 nodes of 3"):
        Environment(nodes=3, node_sizes=SIZES)


def test_what_is_kept_of_a_cluster_of_like_nodes_is_what_it_was() -> None:
    assert "node_sizes" not in Environment(nodes=2).as_json
    assert len(Environment(nodes=2, node_sizes=SIZES).as_json["node_sizes"]) == 2


def test_a_replay_until_one_job_is_done_leaves_the_others_without_an_end() -> None:
    short, long = job("short", 1), replace(job("long", 1), total_epochs=1e6)
    whole = run(short, long)
    for compiled in (False, True):
        part = run(short, long, until="short", compiled=compiled)
        assert part["short"] == whole["short"]
        assert part["long"] is None
    assert whole["long"] is not None
