"""What a cluster answers to a round's tasks."""

import numpy as np
import pytest
from agent_fakes import SPEC, WEIGHTS, make_experience

from cluster_agent.learning.rounds import RoundWork
from cluster_agent.settings import LearningSettings
from policy_net.exchange.wire import RoundKind, RoundTask
from policy_net.learning.actor_critic import GradientComputer

SETTINGS = LearningSettings.model_validate({"actor_critic": {"minimum_effective_samples": 1.0}})
LIVED = [[make_experience(number) for number in range(6)]]


def work(lived=LIVED) -> RoundWork:
    return RoundWork(lambda spec: lived, SETTINGS)


def task(kind: RoundKind = RoundKind.TRAIN, **changes) -> RoundTask:
    values = {"task": "t", "kind": kind, "weights": WEIGHTS, "spec_digest": SPEC.digest, "numbers": {}}
    return RoundTask(**{**values, **changes})


def test_one_local_step_goes_down_the_gradient_by_the_rate() -> None:
    answer = work().answer(task(numbers={"learning-rate": 0.5}), SPEC)
    result = GradientComputer(SPEC, SETTINGS.actor_critic, SETTINGS.seed).gradient(WEIGHTS, LIVED)
    assert np.allclose(answer.weights, WEIGHTS - np.float32(0.5) * result.gradient, atol=1e-7)
    assert (answer.samples, answer.error, answer.weights.dtype) == (result.samples, "", np.float32)


def test_more_local_steps_see_more_samples_and_go_further() -> None:
    one = work().answer(task(numbers={"local-steps": 1}), SPEC)
    three = work().answer(task(numbers={"local-steps": 3}), SPEC)
    assert three.samples == 3 * one.samples
    assert np.linalg.norm(three.weights - WEIGHTS) > np.linalg.norm(one.weights - WEIGHTS)


def test_an_evaluation_tells_and_moves_nothing() -> None:
    worker = work()
    answer = worker.answer(task(RoundKind.EVALUATE), SPEC)
    assert answer.weights.size == 0
    assert {"reward_mean", "entropy_mean", "ratio_mean"} <= set(answer.metrics)
    assert worker.answer(task(), SPEC).weights.tobytes() == work().answer(task(), SPEC).weights.tobytes()


@pytest.mark.parametrize(
    ("lived", "changes", "error"),
    [
        ([], {}, "not enough experience"),
        (LIVED, {"spec_digest": "ab" * 32}, "not of spec"),
        (LIVED, {"weights": WEIGHTS[:-1]}, "not of spec"),
    ],
)
def test_a_task_that_cannot_be_done_is_answered_with_the_reason(lived, changes, error: str) -> None:
    answer = work(lived).answer(task(**changes), SPEC)
    assert error in answer.error
    assert (answer.weights.size, answer.samples) == (0, 0)
