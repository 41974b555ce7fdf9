"""Memory and processor time of another process over a while, and how much the memory grew. Linux only."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from benchmarks.processes import cpu_seconds, resident_bytes

_PERIOD_SECONDS = 1.0
_WINDOW = 0.1
"""Share of the time over which the memory at a moment is a median: versions and snapshots come and go meanwhile."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A moment: seconds since the first, resident bytes, processor seconds since the process began."""

    seconds: float
    resident_bytes: int
    cpu_seconds: float


class Watch:
    """Samples a process once a second within the context."""

    def __init__(self, pid: int, period_seconds: float = _PERIOD_SECONDS) -> None:
        self.samples: list[Sample] = []
        self._pid = pid
        self._period_seconds = period_seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)

    def __enter__(self) -> Watch:
        self._began = time.perf_counter()
        self._poll()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        if error is None:
            self._poll()

    def _watch(self) -> None:
        while not self._ended.wait(self._period_seconds):
            try:
                self._poll()
            except OSError:  # it has ended, which whoever started it sees to
                return

    def _poll(self) -> None:
        seconds = time.perf_counter() - self._began
        self.samples.append(Sample(seconds, resident_bytes(self._pid), cpu_seconds(self._pid)))


def growth_percent(samples: Sequence[Sample], from_seconds: float) -> float:
    """How much more memory a process has at the end than at a moment, in percent of what it had then.

    Both are medians over a tenth of the time between.

    Raises:
        ValueError: nothing was sampled from that moment on.
    """
    late = [sample for sample in samples if sample.seconds >= from_seconds]
    if not late:
        raise ValueError(f"no sample of {from_seconds:.0f} s or later")
    window = max(1, round(_WINDOW * len(late)))
    begin = statistics.median(sample.resident_bytes for sample in late[:window])
    end = statistics.median(sample.resident_bytes for sample in late[-window:])
    return 100.0 * (end - begin) / begin
