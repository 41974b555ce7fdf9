"""Worker that puts questions to the twin's process, one after the other, and gives up on those that take too long.

Nobody waits for it: a question that finds no room, or whose process crashes or hangs, costs its own figures alone.
"""

from __future__ import annotations

import json
import math
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from cluster_agent.rollout.twin_question import Figures, TwinQuestion
from cluster_agent.rollout.twin_record import Asked
from cluster_agent.settings import PolicySettings

_log = structlog.get_logger()

LONGEST_SECONDS = 3600.0
"""For one block, rests included; blocks last two hours at least."""
MOST_WAITING = 8
"""Questions, each of a few megabytes at most."""
_ENDING_SECONDS = 10.0
_LOOK_SECONDS = 0.5
"""Between two looks at whether the agent ends."""


class Twin(Protocol):
    """Answers questions some time later."""

    def ask(self, question: TwinQuestion) -> bool:
        """Take a question without waiting; False if there is no room."""
        ...

    def answers(self) -> dict[Asked, Figures | None]:
        """What was answered since this was last asked; None where there are no figures."""
        ...

    def close(self) -> None:
        """End, and what is under way with it."""
        ...


def twin_command(cpu_percent: float, policy: PolicySettings) -> list[str]:
    """The command of the twin's process."""
    settings = policy.model_dump_json(include={"mode", "exploration", "seed"})
    # Whoever asks for its parent may ask too late: an agent that was killed meanwhile is no longer that.
    return [sys.executable, "-m", "cluster_agent.rollout.twin_process", str(cpu_percent), settings, str(os.getpid())]


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
        self._questions: queue.Queue[TwinQuestion] = queue.Queue(MOST_WAITING)
        self._lock = threading.Lock()
        self._answers: dict[Asked, Figures | None] = {}
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def ask(self, question: TwinQuestion) -> bool:
        """See `Twin`."""
        try:
            self._questions.put_nowait(question)
        except queue.Full:
            _log.warning("twin-gave-up", block=question.number, reason="earlier blocks are still at work")
            return False
        if self._thread is None:  # most agents are in no rollout
            self._thread = threading.Thread(target=self._work, name="twin", daemon=True)
            self._thread.start()
        return True

    def answers(self) -> dict[Asked, Figures | None]:
        """See `Twin`."""
        with self._lock:
            given, self._answers = self._answers, {}
            return given

    def close(self) -> None:
        """See `Twin`."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(_ENDING_SECONDS)

    def _work(self) -> None:
        while not self._ending.is_set():
            try:
                question = self._questions.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue
            figures = None
            try:
                figures = self._figures(question)
            except Exception as error:  # whatever a twin does, a block is reported
                _log.warning("twin-gave-up", block=question.number, reason=str(error) or repr(error))
            with self._lock:
                self._answers[Asked(question.rollout, question.number)] = figures

    def _figures(self, question: TwinQuestion) -> Figures:
        """The figures.

        Raises:
            TimeoutError, ValueError, OSError: there are none.
        """
        single = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        # From a file: what is left in a pipe that is full is forgotten by `communicate` once its time is over.
        with tempfile.TemporaryFile() as line:
            line.write(question.to_line())
            line.seek(0)
            process = subprocess.Popen(  # noqa: S603  (the command is ours)
                self._command,
                stdin=line,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **single},
            )
        try:
            out, said = self._ended(process)
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()
        if process.returncode != 0:
            last = said.decode(errors="replace").strip().splitlines()[-1:]
            raise ValueError(f"its process ended with {process.returncode}: {' '.join(last)[:200]}")
        figures = tuple(float(value) for value in json.loads(out))
        if len(figures) != 3 or not all(math.isfinite(value) and value >= 0.0 for value in figures):
            raise ValueError("its figures are no numbers from 0 on")
        return figures

    def _ended(self, process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
        """What it wrote until it ended; TimeoutError if it is not waited for any longer."""
        deadline = self._clock() + self._longest_seconds
        while True:
            try:
                return process.communicate(timeout=_LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                if self._ending.is_set():
                    raise TimeoutError("the agent ends") from None
                if self._clock() > deadline:
                    raise TimeoutError(f"not done in {self._longest_seconds:g} s") from None
