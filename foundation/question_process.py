"""A process that is asked one question and gives one answer: its deadline, its end, and its share of a core meanwhile.

Whoever asks is a thread that has nothing else to do; it looks now and then whether its own program ends.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence

from foundation.clocks import AwakeClock

POLL_SECONDS = 0.5
"""Between two looks at whether the asker ends."""
LOWEST_PRIORITY = 19
"""Niceness of what gets only what nobody else wants."""
_LONGEST_REST_SECONDS = 5.0
_SHORTEST_REST_SECONDS = 0.05


class CoreShare:
    """Keeps a computation to a share of a core, by rests between its steps.

    Args:
        share: above 0, up to 1.
        owed: CPU seconds that were used before, and count too; as many have passed then at least.
    """

    def __init__(
        self,
        share: float,
        used: Callable[[], float],
        clock: Callable[[], float],
        rest: Callable[[float], None],
        owed: float = 0.0,
    ) -> None:
        self._share, self._used, self._clock, self._rest = share, used, clock, rest
        self._used_before, self._began = used() - owed, clock() - owed

    def keep(self) -> None:
        """Rest until what was used is no more than the share of what has passed."""
        while True:
            used, passed = self._used() - self._used_before, self._clock() - self._began
            missing = used / self._share - passed
            if missing < _SHORTEST_REST_SECONDS:
                return
            self._rest(min(missing, _LONGEST_REST_SECONDS))


def be_modest(
    asker: int, percent: float, most_bytes: int, *, from_start: bool = False, niceness: int = LOWEST_PRIORITY
) -> Callable[[], None]:
    """Take a low priority, no more memory, and end with whoever asked.

    Args:
        niceness: added to that of the asker.
        from_start: whether what the start of this process took counts too; where starts are many, it is most of it.

    Returns:
        What is to be called between two steps of the work: rests, and ends this process if nobody waits any more.
    """
    os.nice(niceness)
    resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))

    def go_on() -> None:
        if os.getppid() != asker:
            raise SystemExit(1)

    def rest(seconds: float) -> None:
        time.sleep(seconds)
        go_on()

    def watch() -> None:
        while os.getppid() == asker:
            time.sleep(POLL_SECONDS)
        os._exit(1)

    # What takes long without a step, such as a file that is read, is to end with the asker too.
    threading.Thread(target=watch, name="asker", daemon=True).start()
    go_on()
    owed = time.process_time() if from_start else 0.0
    share = CoreShare(percent / 100.0, time.process_time, time.monotonic, rest, owed)

    def between_steps() -> None:
        share.keep()
        go_on()

    return between_steps


def ask_process(
    command: Sequence[str],
    question: bytes,
    longest_seconds: float,
    ending: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
) -> bytes:
    """What a process writes that reads a question from its standard input; its numeric libraries have one thread.

    Args:
        longest_seconds: until it is killed.
        ending: whether the asker ends; then it is killed too.

    Raises:
        TimeoutError: it took too long, or the asker ends.
        ValueError: it ended with an error; the message has its last line.
        OSError: it could not be started.
    """
    single = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    # From a file: what is left in a pipe that is full is forgotten by `communicate` once its time is over.
    with tempfile.TemporaryFile() as line:
        line.write(question)
        line.seek(0)
        process = subprocess.Popen(  # noqa: S603  (the command is ours)
            list(command), stdin=line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **single}
        )
    try:
        out, errors = _ended(process, longest_seconds, ending, clock)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    if process.returncode != 0:
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        raise ValueError(f"its process ended with {process.returncode}: {' '.join(last)[:200]}")
    return out


def _ended(
    process: subprocess.Popen[bytes], longest_seconds: float, ending: Callable[[], bool], clock: Callable[[], float]
) -> tuple[bytes, bytes]:
    clock = AwakeClock(20 * POLL_SECONDS, clock)  # it got nothing done while both were stopped
    deadline = clock() + longest_seconds
    while True:
        try:
            return process.communicate(timeout=POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if ending():
                raise TimeoutError("the agent ends") from None
            if clock() > deadline:
                raise TimeoutError(f"not done in {longest_seconds:g} s") from None
