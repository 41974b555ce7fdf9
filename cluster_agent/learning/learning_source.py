"""Source of a cluster's gradients: its twin, or what decisions brought, by the settings, the policy and the learner.

The twin is a process that replays the cluster's past. Whatever goes wrong in it costs a lesson alone, and one log line.
Its replays and comparisons with other schedulers take turns in a share of a core, which one process at a time may take.

Replays of the cluster's past teach both kinds of policy; live gradients teach `set` next to nothing, and `dl2` far more
slowly (docs/results/twin_learning.md, dl2_learning.md). What decides here may be of another kind tomorrow, and the
learner of another mode, so the choice is made anew whenever somebody asks.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import structlog

from cluster_agent.learning.experience import ExperienceQueue
from cluster_agent.learning.twin_lesson import LessonQuestion, TwinAnswer, head_file
from cluster_agent.settings import AgentSettings, LearningSettings
from cluster_agent.telemetry import AgentTelemetry
from foundation.question_process import POLL_SECONDS, ask_process
from policy_net.errors import PolicyNetError
from policy_net.exchange.spec import PolicySpec, SetSpec, WeightSpec
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.exchange.wire import LearnerHead
from policy_net.learning.gradient import GradientResult
from policy_net.learning.replay import Experience
from policy_net.twin.library import notice

MOST_CPU_SECONDS = 1800.0
"""For one process; at 5% of a core that is ten hours."""


class LessonBudget:
    """A share of a core; asked by threads that have nothing else to do than to wait for their answer."""

    def __init__(self, cpu_percent: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.cpu_percent = cpu_percent
        self._clock = clock
        self.waiting: deque[object] = deque()
        self._turns = threading.Condition()

    @property
    def longest_seconds(self) -> float:
        """That a process may take, with its rests."""
        return MOST_CPU_SECONDS * 100.0 / self.cpu_percent

    def ask(
        self, command: Sequence[str], question: Callable[[], bytes], longest_seconds: float, ending: Callable[[], bool]
    ) -> bytes:
        """What a process answers, once it is its turn; the time in which others have theirs does not count.

        The question is made when the turn has come, and what it raises is raised; once `ending`, nobody waits any more.

        Raises:
            TimeoutError, ValueError, OSError: as `ask_process`.
        """
        ticket = object()
        with self._turns:
            self.waiting.append(ticket)
            while not (first := self.waiting[0] is ticket) and not ending():
                self._turns.wait(POLL_SECONDS)
        try:
            if not first:
                raise TimeoutError("the agent ends")
            return ask_process(command, question(), longest_seconds, ending, self._clock)
        finally:
            with self._turns:
                self.waiting.remove(ticket)
                self._turns.notify_all()


_log = structlog.get_logger()


class LearningSource:
    """What `learning.source` comes to; callable from any thread.

    `acting_spec` is None for a scheduler without weights, which nobody teaches; `rounds` is False while not known.
    """

    def __init__(
        self,
        settings: AgentSettings,
        acting_spec: Callable[[], WeightSpec | None],
        rounds: Callable[[], bool],
        telemetry: AgentTelemetry,
    ) -> None:
        self._source = settings.learning.source
        self._has_log = settings.decision_log.enabled
        self._acting_spec = acting_spec
        self._rounds = rounds
        self._telemetry = telemetry
        self._reported: tuple[bool, str] | None = None
        self._lock = threading.Lock()

    @property
    def may_be_twin(self) -> bool:
        """Whether a twin may ever teach under these settings."""
        return self._source == "twin" or (self._source == "auto" and self._has_log)

    def live_into(self, queue: ExperienceQueue) -> Callable[[Experience], None]:
        """What takes experience, and leaves it in the queue while that is what teaches."""

        def take(experience: Experience) -> None:
            if not self.is_twin():
                queue.put(experience)

        return take

    def is_twin(self) -> bool:
        """Whether gradients come from the twin now; says so once, until it is otherwise."""
        found, reason = self._chosen()
        if reason:
            with self._lock:
                changed = self._reported != (found, reason)
                self._reported = (found, reason)
            if changed:
                self._telemetry.from_twin.set(float(found))
                _log.info("learning-source", source="twin" if found else "live", chosen=self._source, reason=reason)
        return found

    def _chosen(self) -> tuple[bool, str]:
        """Whether it is the twin, and why; no reason while nothing decides that can be taught."""
        if self._source != "auto":
            return self._source == "twin", "learning.source says so"
        spec = self._acting_spec()
        if spec is None:
            return False, ""
        if not self._has_log:
            return False, "decision_log.enabled is off, and a twin replays what that log shows"
        if self._rounds():
            return False, "the learner works in rounds, which are answered from live experience"
        return True, f"the policy is of kind {spec.policy}"


def lesson_command(cpu_percent: float) -> list[str]:
    """The command of a lesson's process."""
    # Whoever asks for its parent may ask too late: an agent that was killed meanwhile is no longer that.
    return [sys.executable, "-m", "cluster_agent.learning.lesson_process", str(cpu_percent), str(os.getpid())]


class TwinSource:
    """Used by the trainer's thread while it `applies`; `priors` are of what acts here now.

    By the cluster's name, clusters with one seed draw other windows and directions all the same.
    """

    def __init__(
        self,
        settings: LearningSettings,
        cluster: str,
        state_dir: Path,
        priors: Callable[[], Sequence[SpeedStatistic]],
        telemetry: AgentTelemetry,
        command: Sequence[str] | None = None,
        longest_seconds: float | None = None,
        budget: LessonBudget | None = None,
        applies: Callable[[], bool] = lambda: True,
    ) -> None:
        self.applies = applies
        self._settings = settings
        self._cluster = cluster
        self._state_dir = state_dir
        self._priors = priors
        self._telemetry = telemetry
        self._command = list(command or lesson_command(settings.twin.cpu_percent))
        self.budget = budget or LessonBudget(settings.twin.cpu_percent)
        self._longest_seconds = self.budget.longest_seconds if longest_seconds is None else longest_seconds
        self._questions = 0
        self._reported = ""

    @property
    def has_nothing(self) -> bool:
        """Whether the last lesson said why there is none, and so the next ones may be like it."""
        return bool(self._reported)

    def gradient(
        self, head: Callable[[], LearnerHead], spec: WeightSpec, incarnation: int, ending: Callable[[], bool]
    ) -> GradientResult | None:
        """The gradient at a head; None where there is none, and why is said.

        The head is looked at when the lesson has its turn, which may be hours later, and what that raises is raised.
        Incarnation and number of questions draw window and directions.
        """
        assert isinstance(spec, (SetSpec, PolicySpec))  # noqa: S101  (every kind that there is; narrows the type)
        if not self._questions and (slow := notice()) is not None:
            _log.warning("twin-is-slow", reason=slow)

        def question() -> bytes:
            file, settings = head_file(spec, head().weights, self._priors()), self._settings
            self._questions += 1
            seed = _seed(self._cluster, settings.seed, incarnation, self._questions)
            question = LessonQuestion(file, self._state_dir.resolve(), settings.twin, seed, settings.permute_rewards)
            return question.to_line()

        try:
            line = self.budget.ask(self._command, question, self._longest_seconds, ending)
            answer = TwinAnswer.from_line(line, spec)
        except (OSError, ValueError, KeyError, TypeError, PolicyNetError) as error:
            answer = TwinAnswer(None, reason=str(error) or repr(error))
            if ending():
                return None
        if answer.agreement is not None:
            self._telemetry.twin_agreement.set(answer.agreement)
        if answer.result is None:
            if answer.reason:
                self.report(answer.reason)
            else:
                self._reported = ""
            return None
        self._reported = ""
        return answer.result

    def report(self, reason: str) -> None:
        """Say why nothing is taught: once, until something else is the matter."""
        if reason != self._reported:
            self._reported = reason
            _log.warning("twin-teaches-nothing", reason=reason)


def _seed(cluster: str, seed: int, incarnation: int, question: int) -> int:
    entropy = (zlib.crc32(cluster.encode()), seed, incarnation, question)
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1)
