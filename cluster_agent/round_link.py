"""The thread that asks a learner that works in rounds what to do, does it, and answers.

It sleeps while the learner takes pushed updates instead. An answer that gets lost is computed again when the learner
offers its task again; one that comes too late is not taken, and nothing is lost by it.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from cluster_agent.backoff import Backoff
from cluster_agent.errors import LearnerRefused, LearnerUnreachable
from cluster_agent.learner import Learner
from cluster_agent.repeated_work import RepeatedWork
from cluster_agent.session import Session
from cluster_agent.telemetry import Telemetry
from policy_net.exchange.spec import WeightSpec
from policy_net.exchange.wire import RoundAnswer, RoundTask

_log = structlog.get_logger()

_LOOK_UP_SECONDS = 0.5
"""How often to see whether the learner (another one, perhaps) works in rounds now."""
_NO_ANSWER_SECONDS = 1.0
"""Wait after a task that could not be answered: experience has to come first."""


class RoundLink(RepeatedWork):
    """Polls until it is stopped."""

    def __init__(
        self,
        learner: Learner,
        session: Session,
        answer: Callable[[RoundTask, WeightSpec], RoundAnswer],
        telemetry: Telemetry,
        backoff: Backoff,
    ) -> None:
        super().__init__("rounds")
        self._learner = learner
        self._session = session
        self._answer = answer
        self._telemetry = telemetry
        self._backoff = backoff

    def step(self) -> float:
        """Ask once, and answer; how long to wait before the next time.

        Raises:
            LearnerUnreachable, LearnerRefused: as `Learner`.
        """
        registration = self._session.current
        if registration is None or not registration.rounds:
            return _LOOK_UP_SECONDS
        task = self._learner.poll(registration)
        if task is None:
            self._session.refusals.answered("round")
            return 0.0
        answer = self._answer(task, registration.spec)
        taken = self._learner.reply(registration, answer)
        self._session.refusals.answered("round")
        outcome = "unanswered" if answer.error else "taken" if taken else "late"
        self._telemetry.rounds.labels(outcome).inc()
        _log.debug("round-task", task=task.task, kind=task.kind, outcome=outcome, samples=answer.samples)
        return _NO_ANSWER_SECONDS if answer.error else 0.0

    def _attempt(self) -> float:
        try:
            seconds = self.step()
        except LearnerUnreachable:
            return self._backoff.next_seconds()
        except LearnerRefused as error:
            self._session.refusals.refused("round", error)
            if self._session.current is not None:
                self._session.forget(self._session.current.incarnation)
            return self._backoff.next_seconds()
        except Exception:
            # A fault of ours must not end the rounds for good, nor pass unseen.
            self._telemetry.rounds.labels("failed").inc()
            _log.exception("round-failed")
            return self._backoff.next_seconds()
        self._backoff.reset()
        return seconds
