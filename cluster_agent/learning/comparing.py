"""Comparison of a real cluster's last days with other schedulers, now and then, in a process and a thread of their own.

It takes its turns in the budget of lessons, and few of them: after each it rests for nine times as long. Whatever goes
wrong costs a comparison alone, and is one line in the log.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from cluster_agent.errors import StateDamaged
from cluster_agent.fleet.session import RepeatedWork
from cluster_agent.learning.learning_source import LessonBudget
from cluster_agent.recording.load_history import ReplayedPast
from cluster_agent.settings import AgentSettings

_log = structlog.get_logger()

FIRST_SECONDS = 60.0
"""After the start: an agent has other things to do then."""
EVERY_SECONDS = 3600.0
"""What is told is of the last days: sooner it would say the same."""
_EARLY_SECONDS = 600.0
"""Where there is nothing to tell yet, it is looked at again so much later."""
_RESTS_PER_WORK = 9.0


def comparison_command(cpu_percent: float, state_dir: Path, fallback: str) -> list[str]:
    """The command of a comparison's process."""
    arguments = (str(cpu_percent), str(os.getpid()), str(state_dir.resolve()), fallback)
    return [sys.executable, "-m", "cluster_agent.learning.comparison_process", *arguments]


def comparer_of(settings: AgentSettings, budget: LessonBudget) -> PastComparer | None:
    """What compares, where a real cluster's operator lets it; a simulated one knows its baselines by itself."""
    learner = settings.learner
    enabled = learner is not None and learner.tell_load and learner.tell_baselines and settings.decision_log.enabled
    if not enabled or settings.backend.kind == "simulated":
        return None
    command = comparison_command(budget.cpu_percent, settings.state_dir, settings.guard.fallback)
    return PastComparer(settings.state_dir, budget, command)


class PastComparer(RepeatedWork):
    """Compares again and again until it is finished; `latest` is the newest, also from before a restart.

    `command` writes a comparison, or why there is none; the budget is shared with lessons.
    """

    def __init__(
        self,
        state_dir: Path,
        budget: LessonBudget,
        command: Sequence[str],
        first_seconds: float = FIRST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("comparing")
        self._state_dir = state_dir
        self.budget = budget
        self._command = command
        self._first_seconds = first_seconds
        self._clock = clock
        self._began = False
        self._reported = ""
        self.latest = self._kept()

    def compare(self) -> float:
        """One comparison; returns how many seconds to wait for the next."""
        began = self._clock()
        try:
            answered = self.budget.ask(self._command, bytes, self.budget.longest_seconds, self._stop.is_set)
            content = json.loads(answered)
            past = None if "reason" in content else ReplayedPast.from_json(content)
        except (OSError, ValueError, KeyError, TypeError) as error:
            if not self._stop.is_set():
                self._report(str(error) or repr(error))
            return self._rest(began, EVERY_SECONDS)
        if past is None:
            self._report(str(content["reason"]))
            return self._rest(began, _EARLY_SECONDS)
        self._reported = ""
        self.latest = past
        try:
            past.keep(self._state_dir)
        except OSError as error:
            _log.warning("comparison-not-kept", error=str(error))
        return self._rest(began, EVERY_SECONDS)

    def _rest(self, began: float, least_seconds: float) -> float:
        """As long as it took, many times, whatever came of it."""
        return max(least_seconds, _RESTS_PER_WORK * (self._clock() - began))

    def attempt(self) -> float:
        """See `RepeatedWork.attempt`."""
        if not self._began:
            self._began = True
            return self._first_seconds
        return self.compare()

    def _report(self, reason: str) -> None:
        """Say why there is none: once, until something else is the matter."""
        if reason != self._reported:
            self._reported = reason
            _log.info("nothing-compared", reason=reason)

    def _kept(self) -> ReplayedPast | None:
        try:
            return ReplayedPast.kept(self._state_dir)
        except (StateDamaged, KeyError, TypeError, ValueError, AttributeError) as error:
            _log.warning("comparison-begins-anew", error=repr(error))
            return None
