"""Log lines of floods: whoever floods the learner fills counters, and not its log.

Of like events the first has a line with all that is known, and those that follow within a while one with their number.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import structlog

from foundation.refusal_log import QUIET_SECONDS, RefusalWindows
from global_learner.errors import CallRefusal

_log = structlog.get_logger()

OTHERS = "others"
"""Stands for whoever is beyond those that are told apart."""
Later = Callable[[float, Callable[[], None]], object]
Key = TypeVar("Key", bound=Hashable)


def on_loop(seconds: float, call: Callable[[], None]) -> object:
    """Later, on the running event loop."""
    return asyncio.get_running_loop().call_later(seconds, call)


class FoldedLines(Generic[Key]):
    """Which of like events get a line: the first, and a while later one for all that followed; for one event loop.

    Args:
        others: the key that stands for one more kind, once there are too many to tell apart.
        tell: logs how many had no line, and within how many seconds.
        later: calls after so many seconds.
    """

    def __init__(
        self,
        others: Callable[[Key], Key],
        report: Callable[[Key, int, float], None],
        clock: Callable[[], float] = time.monotonic,
        later: Later = on_loop,
    ) -> None:
        self._report = report
        self._later = later
        # A window ends when it is closed, with a line of its own: nothing is left to an event that may never come.
        self._windows: RefusalWindows[Key] = RefusalWindows(clock, others, quiet_seconds=math.inf)

    def first(self, key: Key) -> Key | None:
        """Count an event; the kind under which it is to have a line, or None if it is told of later."""
        line = self._windows.on_refusal(key)
        if line is None:
            return None
        kind, _ = line
        self._later(QUIET_SECONDS, lambda: self._end(kind))
        return kind

    def _end(self, key: Key) -> None:
        count, seconds = self._windows.close(key)
        if count:
            self._report(key, count, seconds)


class CallRefusalLog:
    """Log lines of refused calls, alike by the caller's host and the reason; for one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, later: Later = on_loop) -> None:
        self._lines: FoldedLines[tuple[str, CallRefusal]] = FoldedLines(
            lambda key: (OTHERS, key[1]), _report_refusals, clock, later
        )

    def on_refusal(self, peer: str, reason: CallRefusal, method: str, status: str, text: str) -> None:
        """Log a call, or count it into the line to come; connections from one host are one caller."""
        kind = self._lines.first((host_of(peer), reason))
        if kind is not None:
            _log.warning("call-refused", method=method, status=status, reason=text, peer=kind[0])


def _report_refusals(key: tuple[str, CallRefusal], calls: int, seconds: float) -> None:
    _log.warning("calls-refused", peer=key[0], reason=key[1].value, calls=calls, seconds=round(seconds, 1))


def host_of(peer: str) -> str:
    """`ipv4:10.0.0.7:51234` without its port."""
    return peer.rpartition(":")[0] if peer.startswith(("ipv4:", "ipv6:")) else peer
