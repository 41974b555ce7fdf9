"""Budget of replays of a cluster's past: a share of a core, which one process at a time may take.

Lessons and comparisons with other schedulers take turns in it, in the order in which they asked. Each process keeps to
the share by itself (`foundation.asked_process`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from foundation.asked_process import POLL_SECONDS, answer_of

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
            TimeoutError, ValueError, OSError: as `answer_of`.
        """
        ticket = object()
        with self._turns:
            self.waiting.append(ticket)
            while not (first := self.waiting[0] is ticket) and not ending():
                self._turns.wait(POLL_SECONDS)
        try:
            if not first:
                raise TimeoutError("the agent ends")
            return answer_of(command, question(), longest_seconds, ending, self._clock)
        finally:
            with self._turns:
                self.waiting.remove(ticket)
                self._turns.notify_all()
