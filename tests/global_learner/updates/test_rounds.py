"""Rounds through a real learner, answered by hand: what one ends with, what is refused, what a kill leaves."""

import time
from pathlib import Path

import numpy as np
import pytest
from learner_makers import SPEC, policy, vector
from learner_process import DEADLINE_SECONDS, LearnerProcess

from global_learner.storage.receipts import audit, read_receipts
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.spec import Weights, weights_from_bytes
from policy_net.exchange.wire import (
    RoundAnswer,
    RoundKind,
    RoundTask,
    reply_request,
    round_answer,
    round_task,
    task_of_round,
)

CLUSTERS = ("north", "south", "east")


def test_tasks_and_answers_travel_unchanged() -> None:
    task = RoundTask("t-1", RoundKind.EVALUATE, vector(1), SPEC.digest, {"server-round": 2.0}, {"note": "x"})
    back = task_of_round(pb.RoundTask.FromString(round_task(task).SerializeToString()))
    assert (back.task, back.kind, back.spec_digest, back.numbers, back.texts) == (
        task.task,
        task.kind,
        task.spec_digest,
        task.numbers,
        task.texts,
    )
    assert back.weights.tobytes() == task.weights.tobytes()
    answer = RoundAnswer("t-1", vector(2), 7, {"reward_mean": 0.5}, "late")
    again = round_answer(reply_request(answer, "north", 3))
    assert (again.task, again.samples, again.metrics, again.error) == ("t-1", 7, {"reward_mean": 0.5}, "late")
    assert again.weights.tobytes() == answer.weights.tobytes()


class Hand:
    """The agents of three clusters, by hand."""

    def __init__(self, learner: LearnerProcess) -> None:
        self._channel = learner.channel()
        self.fleet = rpc.FleetStub(self._channel)
        self.incarnations = {name: self._register(name) for name in CLUSTERS}

    def _register(self, name: str) -> int:
        reply = self.fleet.Register(pb.RegisterRequest(cluster=name), timeout=10, wait_for_ready=True)
        assert reply.rounds
        return reply.incarnation

    def task(self, name: str, kind: RoundKind) -> RoundTask:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            for other in CLUSTERS:  # all must poll, or they are no nodes
                request = pb.PollRequest(cluster=other, incarnation=self.incarnations[other])
                reply = self.fleet.Poll(request, timeout=60)
                if other == name and reply.HasField("task") and task_of_round(reply.task).kind is kind:
                    return task_of_round(reply.task)
        raise AssertionError(f"no {kind} task for {name}")

    def answer(self, name: str, task: RoundTask, weights: Weights, samples: int = 5) -> bool:
        answer = RoundAnswer(task.task, weights, samples, {"reward_mean": 1.0})
        return self.fleet.Reply(reply_request(answer, name, self.incarnations[name]), timeout=60).taken

    def train(self, moves: dict[str, Weights]) -> list[bool]:
        tasks = {name: self.task(name, RoundKind.TRAIN) for name in moves}
        return [self.answer(name, tasks[name], tasks[name].weights + move) for name, move in moves.items()]

    def evaluate(self) -> None:
        for name in CLUSTERS:
            self.answer(name, self.task(name, RoundKind.EVALUATE), np.empty(0, np.float32))

    def head(self, step: int) -> Weights:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            request = pb.PullHeadRequest(cluster="north", incarnation=self.incarnations["north"])
            reply = self.fleet.PullHead(request, timeout=60)
            if reply.step >= step:
                return weights_from_bytes(reply.weights, SPEC)
        raise AssertionError(f"the head does not reach step {step}")


@pytest.mark.heavy
def test_a_round_ends_with_the_median_of_the_sound_answers_and_survives_kill_9(tmp_path: Path) -> None:
    learner = LearnerProcess(
        tmp_path, aggregation={"mode": "rounds", "strategy": "FedMedian", "min_clusters": 3, "round_seconds": 600.0}
    )
    learner.start()
    moves = {name: np.float32(0.01) * vector(10 + place) for place, name in enumerate(CLUSTERS)}
    try:
        hand = Hand(learner)
        assert hand.train(moves) == [True] * 3
        hand.evaluate()
        first = hand.head(3)
        ends = np.stack([policy().weights + move for move in moves.values()])
        assert np.array_equal(first, np.median(ends, axis=0))
        broken = np.full_like(vector(0), np.nan)
        assert hand.train({**moves, "east": broken}) == [True] * 3  # taken as an answer: that there is none
        hand.evaluate()
        second = hand.head(5)
        assert np.allclose(second, first + (moves["north"] + moves["south"]) / 2, atol=1e-6)
        stale = hand.task("north", RoundKind.TRAIN)  # the third round is under way
        learner.kill()
        learner.start()
        hand = Hand(learner)
        assert hand.head(5).tobytes() == second.tobytes()
        assert not hand.answer("north", stale, stale.weights)
        assert hand.train({name: 1e6 * move for name, move in moves.items()}) == [True] * 3
        rejected = {view.cluster: dict(view.updates_rejected) for view in learner.fleet().clusters}
        assert all(reasons["norm-too-large"] == 1 for reasons in rejected.values())
        assert learner.end() == 0
    finally:
        learner.close()
    counts = audit(read_receipts(learner.state_dir, SPEC.digest))
    assert {name: count for (name, _), count in counts.items()} == {"north": 2, "south": 2, "east": 1}


@pytest.mark.heavy
def test_a_reset_of_the_head_gives_up_the_round_under_way_and_begins_anew_from_there(tmp_path: Path) -> None:
    aggregation = {"mode": "rounds", "strategy": "FedMedian", "min_clusters": 3, "round_seconds": 600.0}
    learner = LearnerProcess(tmp_path, aggregation=aggregation, publish={"every_steps": 3})
    learner.start()
    moves = {name: np.float32(0.01) * vector(10 + place) for place, name in enumerate(CLUSTERS)}
    try:
        hand = Hand(learner)
        assert hand.train(moves) == [True] * 3
        hand.evaluate()
        hand.head(3)
        stale = hand.task("north", RoundKind.TRAIN)  # of the round that goes on from step 3
        with learner.operators() as channel:
            admin = rpc.AdminStub(channel)
            done = admin.ResetHead(pb.ResetHeadRequest(version=1), timeout=60)
        assert (done.from_step, done.head_step, done.changed) == (3, 4, True)
        assert hand.head(4).tobytes() == policy().weights.tobytes()
        assert not hand.answer("north", stale, stale.weights), "the round that it belongs to was given up"
        fresh = hand.task("north", RoundKind.TRAIN)
        assert fresh.weights.tobytes() == policy().weights.tobytes()
        assert hand.train(moves) == [True] * 3
        hand.evaluate()
        ends = np.stack([policy().weights + move for move in moves.values()])
        assert np.array_equal(hand.head(7), np.median(ends, axis=0))
        assert learner.end() == 0
    finally:
        learner.close()
    assert sum(audit(read_receipts(learner.state_dir, SPEC.digest)).values()) == 6
