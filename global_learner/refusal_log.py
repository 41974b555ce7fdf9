"""Log lines of refused calls: whoever floods the learner fills counters, and not its log.

Of one caller's host and one reason, the first call is logged with all that is known, and those that follow within a
while in one line with their number. Every call is counted all the same (`fedl2_learner_refusals_total`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from global_learner.errors import Refusal

_log = structlog.get_logger()

EVERY_SECONDS = 10.0
"""Often enough to watch a flood, seldom enough for it to be no load."""
MOST_KEYS = 256
"""Pairs of host and reason that are told apart at a time; all others share a line a reason."""
OTHERS = "others"

Later = Callable[[float, Callable[[], None]], object]


def _on_loop(seconds: float, call: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(seconds, call)


@dataclass(slots=True)
class _Window:
    """What came since the line about a first call."""

    began_seconds: float
    left_out: int = 0


class RefusalLog:
    """For one event loop.

    Args:
        clock: seconds, never back.
        later: calls after so many seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, later: Later = _on_loop) -> None:
        self._clock = clock
        self._later = later
        self._windows: dict[tuple[str, Refusal], _Window] = {}

    def refused(self, peer: str, reason: Refusal, method: str, status: str, text: str) -> None:
        """Log a call, or count it into the line to come.

        Args:
            peer: as gRPC names it; connections from one host are one caller.
            text: what the caller was told, or more.
        """
        key = (_host(peer), reason)
        if key not in self._windows and len(self._windows) >= MOST_KEYS:
            key = (OTHERS, reason)
        window = self._windows.get(key)
        if window is not None:
            window.left_out += 1
            return
        self._windows[key] = _Window(self._clock())
        self._later(EVERY_SECONDS, lambda: self._end(key))
        _log.warning("call-refused", method=method, status=status, reason=text, peer=key[0])

    def _end(self, key: tuple[str, Refusal]) -> None:
        window = self._windows.pop(key)
        if window.left_out:
            seconds = round(self._clock() - window.began_seconds, 1)
            _log.warning("calls-refused", peer=key[0], reason=key[1].value, calls=window.left_out, seconds=seconds)


def _host(peer: str) -> str:
    """`ipv4:10.0.0.7:51234` without its port."""
    return peer.rpartition(":")[0] if peer.startswith(("ipv4:", "ipv6:")) else peer
