"""This cluster's answer to a round: gradient steps from the weights it was sent, or how they look from here.

Train: `local-steps` steps of plain gradient descent with `learning-rate` (the strategy's configuration; 1 and 0.01
unless sent), each on a fresh draw from the replay; the answer is where they end, with the micro-actions that they were
computed from. Evaluate: the statistics of the loss at those weights on one draw (mean reward, entropy,
mean probability ratio); nothing moves. A cluster without enough experience says so instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from cluster_agent.settings import LearningSettings
from policy_net.exchange.spec import Weights, WeightSpec
from policy_net.exchange.wire import RoundAnswer, RoundKind, RoundTask
from policy_net.learning.gradient import Gradients, NotEnoughSamples
from policy_net.learning.replay import Experience
from policy_net.policy_kinds import gradients_for

_LOCAL_STEPS, _LEARNING_RATE = "local-steps", "learning-rate"
_MOST_LOCAL_STEPS = 1000
"""Whoever runs the rounds must not be able to keep an agent busy for ever."""

_NOTHING: Weights = np.empty(0, np.float32)


class RoundWork:
    """Answers tasks, one at a time.

    Args:
        segments: draws from this cluster's experience for an update of such policies; callable from any thread.
    """

    def __init__(
        self, segments: Callable[[WeightSpec], Sequence[Sequence[Experience]]], settings: LearningSettings
    ) -> None:
        self._segments = segments
        self._settings = settings
        self._computers: dict[RoundKind, tuple[str, Gradients]] = {}

    def answer(self, task: RoundTask, spec: WeightSpec) -> RoundAnswer:
        """The answer; one with an error where there is none."""
        if task.spec_digest != spec.digest or task.weights.shape != (spec.parameter_count,):
            return RoundAnswer(task.task, _NOTHING, 0, error=f"the task is not of spec {spec.digest[:12]}")
        if not (np.isfinite(task.weights).all() and all(map(math.isfinite, task.numbers.values()))):
            return RoundAnswer(task.task, _NOTHING, 0, error="the task holds NaN or infinity")
        try:
            return self._train(task, spec) if task.kind is RoundKind.TRAIN else self._evaluate(task, spec)
        except NotEnoughSamples as error:
            return RoundAnswer(task.task, _NOTHING, 0, error=f"not enough experience: {error}")

    def _train(self, task: RoundTask, spec: WeightSpec) -> RoundAnswer:
        steps = max(1, min(int(task.numbers.get(_LOCAL_STEPS, 1)), _MOST_LOCAL_STEPS))
        rate = np.float32(task.numbers.get(_LEARNING_RATE, 0.01))
        weights, samples, statistics = task.weights, 0, {}
        for _ in range(steps):
            result = self._computer(task.kind, spec).gradient(weights, self._segments(spec))
            weights = weights - rate * result.gradient
            samples += result.samples
            statistics = result.statistics
        return RoundAnswer(task.task, weights, samples, statistics)

    def _evaluate(self, task: RoundTask, spec: WeightSpec) -> RoundAnswer:
        result = self._computer(task.kind, spec).gradient(task.weights, self._segments(spec))
        return RoundAnswer(task.task, _NOTHING, result.samples, result.statistics)

    def _computer(self, kind: RoundKind, spec: WeightSpec) -> Gradients:
        """One for each kind: to evaluate must not change how the next gradient is scaled."""
        digest, computer = self._computers.get(kind, ("", None))
        if computer is None or digest != spec.digest:
            settings = self._settings
            computer = gradients_for(spec, settings.actor_critic, settings.residual, settings.seed)
            self._computers[kind] = (spec.digest, computer)
        return computer
