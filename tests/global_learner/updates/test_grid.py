"""Flower's view of the fleet, without a network: nodes, tasks, answers, and what is late, lost or foreign."""

import threading

import numpy as np
import pytest
from flwr.app import ConfigRecord
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_makers import SPEC, vector

from global_learner.aggregation.flower import array_record, build_strategy, flat_weights, flower
from global_learner.updates.grid import FleetGrid, GridClosed
from policy_net.exchange.wire import RoundAnswer, RoundKind

flower()
CLUSTERS = ("north", "south", "east")
DEADLINE_SECONDS = 60.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def grid_of(clusters=CLUSTERS, clock=None) -> FleetGrid:
    grid = FleetGrid(SPEC, "life", live_seconds=10.0, clock=clock or Clock())
    for cluster in clusters:
        assert grid.poll(cluster) is None
    return grid


def put_out(grid: FleetGrid, strategy=None, number: int = 1) -> list[str]:
    strategy = strategy or build_strategy("FedMedian", {}, min_train_nodes=3, min_available_nodes=3)
    config = ConfigRecord({"learning-rate": 0.5, "note": "x"})
    return list(grid.push_messages(strategy.configure_train(number, array_record(vector(0), SPEC), config, grid)))


def answer_of(name: str, seed: int = 1, **changes) -> RoundAnswer:
    return RoundAnswer(
        **{"task": name, "weights": vector(seed), "samples": 5, "metrics": {"reward_mean": 1.0}, **changes}
    )


def test_a_task_carries_the_weights_and_the_strategys_configuration() -> None:
    grid = grid_of()
    put_out(grid)
    task = grid.poll("north")
    assert (task.kind, task.spec_digest) == (RoundKind.TRAIN, SPEC.digest)
    assert task.weights.tobytes() == vector(0).tobytes()
    assert (dict(task.numbers), dict(task.texts)) == ({"learning-rate": 0.5, "server-round": 1.0}, {"note": "x"})


def test_a_task_is_offered_until_it_is_answered_and_answered_once() -> None:
    grid = grid_of()
    put_out(grid)
    task = grid.poll("north")
    assert grid.poll("north").task == task.task
    assert grid.answer("north", answer_of(task.task))
    assert not grid.answer("north", answer_of(task.task, seed=2))
    assert grid.poll("north") is None


def test_another_clusters_task_or_one_of_an_earlier_life_is_not_taken() -> None:
    grid = grid_of()
    put_out(grid)
    task = grid.poll("north")
    assert not grid.answer("south", answer_of(task.task))
    assert not grid.answer("north", answer_of("other-1"))


def test_a_cluster_that_no_longer_polls_is_no_node() -> None:
    clock = Clock()
    grid = grid_of(clock=clock)
    clock.now = 8.0
    grid.poll("south")
    clock.now = 12.0
    assert list(grid.get_node_ids()) == [2]


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(CLUSTERS), repeats=st.lists(st.sampled_from(CLUSTERS), max_size=5))
def test_a_round_is_the_median_whatever_the_order_and_the_repeats(order, repeats) -> None:
    grid = grid_of()
    strategy = build_strategy("FedMedian", {}, min_train_nodes=3, min_available_nodes=3)
    names = put_out(grid, strategy)
    tasks = {cluster: grid.poll(cluster).task for cluster in CLUSTERS}
    for cluster in (*repeats, *order, *repeats):
        grid.answer(cluster, answer_of(tasks[cluster], seed=CLUSTERS.index(cluster) + 1))
    arrays, _ = strategy.aggregate_train(1, grid.pull_messages(names))
    assert np.array_equal(flat_weights(arrays, SPEC), np.median([vector(1), vector(2), vector(3)], axis=0))
    assert sorted(cluster for cluster, _ in grid.trained) == sorted(CLUSTERS)


def test_who_is_late_is_left_out_and_told_so() -> None:
    grid = grid_of()
    strategy = build_strategy("FedMedian", {}, min_train_nodes=3, min_available_nodes=3)
    late = []

    def answer_two() -> None:
        tasks = {cluster: grid.poll(cluster).task for cluster in CLUSTERS}
        grid.answer("north", answer_of(tasks["north"]))
        grid.answer("south", answer_of(tasks["south"], error="not enough experience"))
        late.append(tasks["east"])

    grid._wake = answer_two
    messages = strategy.configure_train(1, array_record(vector(0), SPEC), ConfigRecord(), grid)
    replies = list(grid.send_and_receive(messages, timeout=0.01))
    assert [reply.has_error() for reply in replies].count(True) == 1
    assert [cluster for cluster, _ in grid.trained] == ["north"]
    assert not grid.answer("east", answer_of(late[0]))
    assert grid.poll("east") is None


def test_closing_ends_a_strategy_wherever_it_waits() -> None:
    for clusters in ((), CLUSTERS):  # for nodes, for answers
        grid = grid_of(clusters)
        ended = threading.Event()

        def run(grid=grid, ended=ended) -> None:
            strategy = build_strategy("FedAvg", {}, min_train_nodes=3, min_available_nodes=3)
            with pytest.raises(GridClosed):
                strategy.start(grid=grid, initial_arrays=array_record(vector(0), SPEC), num_rounds=2)
            ended.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        grid.close()
        assert ended.wait(DEADLINE_SECONDS)
        thread.join(DEADLINE_SECONDS)
