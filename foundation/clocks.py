"""Clocks for waits that a sleeping machine and a stopped process must not falsify.

A process can be stopped for minutes and not know it: SIGSTOP, Ctrl-Z, a frozen container, a virtual machine that is
moved, a laptop that sleeps. Who *holds* something for a time (a lease) reads `boot_seconds`: the time is over for
everybody else, so it is for the holder. Who *judges the silence of others* reads an `AwakeClock`: while it was stopped
it could have heard nobody. What is *measured* of others is divided by real time.

`CLOCK_BOOTTIME` sees a machine that sleeps, where `CLOCK_MONOTONIC` stands still. Neither shows that a process was
stopped: only that it looks at its clock much later than it does otherwise.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Monotonic seconds."""
UnixClock = Callable[[], float]
"""The time of day, in Unix seconds."""


def boot_seconds() -> float:
    """Seconds that also pass while the machine sleeps; nobody sets them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def deadline(seconds: float | None, clock: Callable[[], float] = time.monotonic) -> Callable[[], bool]:
    """Whether so many seconds have passed from now on; never if None."""
    end = None if seconds is None else clock() + seconds
    return lambda: end is not None and clock() >= end


class AwakeClock:
    """Seconds in which its process ran: a gap between two polls counts `most_seconds` at most.

    It is polled from any thread or signal handler, and more often than that: in the loop that hears the others. The
    seconds of `clock` also pass while the machine sleeps.
    """

    def __init__(self, most_seconds: float, clock: Callable[[], float] = boot_seconds) -> None:
        self._most_seconds, self._clock = most_seconds, clock
        self._lock = threading.RLock()  # a handler comes upon its own thread in the middle of a look
        self._polled = self._counted = clock()
        self._missed = 0.0

    def __call__(self) -> float:
        """Look: the seconds so far."""
        with self._lock:
            now = self._clock()
            passed = max(now - self._polled, 0.0)
            self._polled += passed
            counted = min(passed, self._most_seconds)
            self._counted += counted
            self._missed += passed - counted
            return self._counted

    @property
    def missed_seconds(self) -> float:
        """Seconds that were not counted, of all gaps together."""
        with self._lock:
            return self._missed
