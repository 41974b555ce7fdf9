"""Every way in which an answer to a round can be wrong: rejected with its word, and the round leaves no trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from hostile_learner import CALL_SECONDS, HostileLearner
from processes import wait_until

from global_learner.errors import Rejection
from policy_net.exchange.generated import fleet_pb2 as pb

pytestmark = pytest.mark.heavy


def moved(task: pb.RoundTask, **changes: float) -> bytes:
    """A small step from the weights that were sent, with a few values changed."""
    weights = np.frombuffer(task.weights, "<f4").copy() + np.float32(1e-4)
    for place, value in changes.items():
        weights[int(place.removeprefix("at"))] = value
    return weights.tobytes()


REJECTED: dict[str, tuple[Any, Rejection]] = {
    "nan": (lambda task: {"weights": moved(task, at0=np.nan)}, Rejection.NOT_FINITE),
    "infinite": (lambda task: {"weights": moved(task, at42=np.inf)}, Rejection.NOT_FINITE),
    "far-away": (lambda task: {"weights": moved(task, at1=1e30)}, Rejection.NORM_TOO_LARGE),
    "short": (lambda task: {"weights": moved(task)[:-4]}, Rejection.WRONG_SHAPE),
    "float64": (lambda task: {"weights": task.weights * 2}, Rejection.WRONG_SHAPE),
    "empty": (lambda task: {"weights": b""}, Rejection.WRONG_SHAPE),
    "no-samples": (lambda task: {"weights": moved(task), "samples": 0}, Rejection.BAD_SAMPLES),
}


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileLearner]:
    learner = HostileLearner(
        tmp_path_factory.mktemp("rounds"),
        aggregation={"mode": "rounds", "strategy": "FedAvg", "min_clusters": 1, "round_seconds": 600.0},
        quarantine={"seconds": 0},
    )
    yield learner
    learner.close()


def task_of(learner: HostileLearner) -> pb.RoundTask:
    """The next training task; evaluations are answered on the way."""
    found: list[pb.RoundTask] = []

    def offered() -> bool:
        reply = learner.fleet(learner.north).Poll(pb.PollRequest(incarnation=learner.incarnation), timeout=CALL_SECONDS)
        if reply.HasField("task") and reply.task.kind == pb.RoundTask.EVALUATE:
            answer(learner, reply.task, samples=1)
        elif reply.HasField("task"):
            found.append(reply.task)
        return bool(found)

    wait_until(offered, "a task")
    return found[0]


def answer(learner: HostileLearner, task: pb.RoundTask, **fields: Any) -> bool:
    values = {"samples": 5, "task": task.task, "incarnation": learner.incarnation, **fields}
    return learner.fleet(learner.north).Reply(pb.ReplyRequest(**values), timeout=CALL_SECONDS).taken


@pytest.mark.parametrize("case", REJECTED)
def test_a_wrong_answer_is_rejected_and_the_head_stays(case: str, learner: HostileLearner) -> None:
    changes, reason = REJECTED[case]
    step = learner.shown()["head_step"]
    task = task_of(learner)
    counted = learner.counted()
    assert answer(learner, task, **changes(task))
    assert (learner.counted() - counted)["fedl2_learner_rejections_total", reason] == 1
    assert not answer(learner, task, weights=moved(task))  # the task is over: a second try counts for nothing
    assert learner.shown()["head_step"] == step


def test_bad_metrics_are_refused_and_the_task_stays(learner: HostileLearner) -> None:
    task = task_of(learner)
    for metrics in ({"loss": float("nan")}, {"loss": float("inf")}, {f"m{n}": 1.0 for n in range(100)}):
        with pytest.raises(grpc.RpcError) as caught:
            answer(learner, task, weights=moved(task), metrics=metrics)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not answer(learner, pb.RoundTask(task="another"), weights=moved(task))
    step = learner.shown()["head_step"]
    assert answer(learner, task, weights=moved(task))
    assert not answer(learner, task, weights=moved(task))
    task_of(learner)  # of the next round
    assert learner.shown()["head_step"] == step + 1


def test_a_push_is_told_that_there_are_rounds(learner: HostileLearner) -> None:
    learner.register()
    assert learner.good_push().reason == Rejection.ROUNDS_ONLY
