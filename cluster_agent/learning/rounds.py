"""Rounds: the learner asks this cluster for work, which a thread of its own does and answers.

The thread sleeps while the learner takes pushed updates instead. An answer that gets lost is computed again when the
learner offers its task again; one that comes too late is not taken, and nothing is lost by it.

Train: `local-steps` steps of plain gradient descent with `learning-rate` (the strategy's configuration; 1 and 0.01
unless sent), each on a fresh draw from the replay; the answer is the weights where they end, with the micro-actions
that they were computed from. Evaluate: the statistics of the loss at those weights on one draw (mean reward, entropy,
mean probability ratio); nothing moves. A cluster without enough experience says so instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import structlog

from cluster_agent.fleet.session import LearnerAccess, RepeatedWork
from cluster_agent.settings import LearningSettings
from policy_net.errors import LearnerRefused, LearnerUnreachable
from policy_net.exchange.spec import Weights, WeightSpec
from policy_net.exchange.wire import RoundAnswer, RoundKind, RoundTask
from policy_net.learning.gradient import Gradients, NotEnoughSamples
from policy_net.learning.replay import Experience
from policy_net.policy_kinds import gradients_for

_log = structlog.get_logger()

_POLL_EVERY_SECONDS = 0.5
"""How often to see whether the learner (another one, perhaps) works in rounds now."""
_NO_ANSWER_SECONDS = 1.0
"""Wait after a task that could not be answered: experience has to come first."""
_LOCAL_STEPS, _LEARNING_RATE = "local-steps", "learning-rate"
_MOST_LOCAL_STEPS = 1000
"""Whoever runs the rounds must not be able to keep an agent busy for ever."""

_NOTHING: Weights = np.empty(0, np.float32)


class RoundLink(RepeatedWork):
    """The thread that polls for tasks until it is stopped."""

    def __init__(self, access: LearnerAccess, answer: Callable[[RoundTask, WeightSpec], RoundAnswer]) -> None:
        super().__init__("rounds")
        self._learner = access.learner
        self._session = access.session
        self._telemetry = access.telemetry
        self._backoff = access.backoff
        self._answer = answer

    def step(self) -> float:
        """Ask once, and answer; how long to wait before the next time.

        Raises:
            LearnerUnreachable, LearnerRefused: as `LearnerClient`.
        """
        registration = self._session.registration
        if registration is None or not registration.rounds:
            return _POLL_EVERY_SECONDS
        task = self._learner.poll(registration)
        if task is None:
            self._session.refusals.on_answered("round")
            return 0.0
        answer = self._answer(task, registration.spec)
        taken = self._learner.reply(registration, answer)
        self._session.refusals.on_answered("round")
        outcome = "unanswered" if answer.error else "taken" if taken else "late"
        self._telemetry.rounds.labels(outcome).inc()
        _log.debug("round-answered", task=task.task, kind=task.kind, outcome=outcome, samples=answer.samples)
        return _NO_ANSWER_SECONDS if answer.error else 0.0

    def attempt(self) -> float:
        """See `RepeatedWork.attempt`."""
        try:
            seconds = self.step()
        except LearnerUnreachable:
            return self._backoff.next_seconds()
        except LearnerRefused as error:
            self._session.refusals.on_refused("round", error)
            if self._session.registration is not None:
                self._session.forget(self._session.registration.incarnation)
            return self._backoff.next_seconds()
        except Exception:
            # A fault of ours must not end the rounds for good, nor pass unseen.
            self._telemetry.rounds.labels("failed").inc()
            _log.exception("round-failed")
            return self._backoff.next_seconds()
        self._backoff.reset()
        return seconds


class RoundWork:
    """The answers to tasks, one at a time, from `segments` of experience (drawn from any thread).

    A `private` cluster does no task: its noise is for pushed updates only.
    """

    def __init__(
        self,
        segments: Callable[[WeightSpec], Sequence[Sequence[Experience]]],
        settings: LearningSettings,
        *,
        private: bool = False,
    ) -> None:
        self._private = private
        self._segments = segments
        self._settings = settings
        self._computers: dict[RoundKind, tuple[str, Gradients]] = {}

    def answer(self, task: RoundTask, spec: WeightSpec) -> RoundAnswer:
        """The answer; one with an error where there is none."""
        if self._private:
            return RoundAnswer(task.task, _NOTHING, 0, error="section privacy of this agent covers no rounds")
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
