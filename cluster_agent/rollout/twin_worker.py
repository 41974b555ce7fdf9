"""Worker that puts questions to the twin's process, one after the other, and gives up on those that take too long.

Nobody waits for it: a question that finds no room, or whose process crashes or hangs, costs its own figures alone.
"""

from __future__ import annotations

import json
import math
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from cluster_agent.rollout.twin_question import AGENTS_PRIORITY, BlockQuestion, Figures
from cluster_agent.rollout.twin_record import AskedBlock
from cluster_agent.settings import PolicySettings
from foundation.asked_process import POLL_SECONDS, answer_of

_log = structlog.get_logger()

LONGEST_SECONDS = 3600.0
"""For one block, rests included; blocks last two hours at least."""
MOST_WAITING = 8
"""Questions, each of a few megabytes at most."""
_ENDING_SECONDS = 10.0


class Twin(Protocol):
    """Answers questions some time later."""

    def ask(self, question: BlockQuestion) -> bool:
        """Take a question without waiting; False if there is no room."""
        ...

    def answers(self) -> dict[AskedBlock, Figures | None]:
        """What was answered since this was last asked; None where there are no figures."""
        ...

    @property
    def unanswered(self) -> int:
        """Questions that were taken and have no answer yet."""
        ...

    def close(self) -> None:
        """End, and what is under way with it."""
        ...


def twin_command(cpu_percent: float, policy: PolicySettings, *, modest: bool = True) -> list[str]:
    """The command of the twin's process.

    Args:
        modest: whether it takes only what nobody else wants of the processor.
    """
    settings = policy.model_dump_json(include={"mode", "exploration", "seed"})
    # Whoever asks for its parent may ask too late: an agent that was killed meanwhile is no longer that.
    words = [str(cpu_percent), settings, str(os.getpid()), *([] if modest else [AGENTS_PRIORITY])]
    return [sys.executable, "-m", "cluster_agent.rollout.twin_process", *words]


class TwinWorker:
    """A thread that begins a process for every question.

    Args:
        command: reads one question and writes three figures, as `twin_process` does.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        command: Sequence[str],
        longest_seconds: float = LONGEST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = list(command)
        self._longest_seconds = longest_seconds
        self._clock = clock
        self._questions: queue.Queue[BlockQuestion] = queue.Queue(MOST_WAITING)
        self._lock = threading.Lock()
        self._answers: dict[AskedBlock, Figures | None] = {}
        self._unanswered = 0
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def ask(self, question: BlockQuestion) -> bool:
        """See `Twin`."""
        try:
            self._questions.put_nowait(question)
        except queue.Full:
            _log.warning("twin-gave-up", block=question.number, reason="earlier blocks are still at work")
            return False
        with self._lock:
            self._unanswered += 1
        if self._thread is None:  # most agents are in no rollout
            self._thread = threading.Thread(target=self._work, name="twin", daemon=True)
            self._thread.start()
        return True

    def answers(self) -> dict[AskedBlock, Figures | None]:
        """See `Twin`."""
        with self._lock:
            given, self._answers = self._answers, {}
            return given

    @property
    def unanswered(self) -> int:
        """See `Twin`."""
        with self._lock:
            return self._unanswered

    def close(self) -> None:
        """See `Twin`."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(_ENDING_SECONDS)

    def _work(self) -> None:
        while not self._ending.is_set():
            try:
                question = self._questions.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
            figures = None
            try:
                figures = self._figures(question)
            except Exception as error:  # whatever a twin does, a block is reported
                _log.warning("twin-gave-up", block=question.number, reason=str(error) or repr(error))
            with self._lock:
                self._answers[AskedBlock(question.rollout, question.number)] = figures
                self._unanswered -= 1

    def _figures(self, question: BlockQuestion) -> Figures:
        """The figures.

        Raises:
            TimeoutError, ValueError, OSError: there are none.
        """
        out = answer_of(self._command, question.to_line(), self._longest_seconds, self._ending.is_set, self._clock)
        figures = tuple(float(value) for value in json.loads(out))
        if len(figures) != 3 or not all(math.isfinite(value) and value >= 0.0 for value in figures):
            raise ValueError("its figures are no numbers from 0 on")
        return figures
