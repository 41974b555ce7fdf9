"""Log lines of what is refused again and again: whoever floods a program fills its counters, and not its log.

Of like refusals the first has a line. Those that follow within a while are counted, and told of by one number later.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

QUIET_SECONDS: Final = 10.0
"""Often enough to watch a flood, seldom enough for it to be no load."""
MOST_KEYS: Final = 256
"""Kinds of refusals that are told apart at a time."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class _Window:
    """What came since the line about a first refusal."""

    began_seconds: float
    left_out: int = 0


class RefusalWindows(Generic[Key]):
    """Which refusals get a line; for one thread.

    Args:
        others: the key that stands for one more kind, once there are `MOST_KEYS`; None drops the oldest kind instead.
        quiet_seconds: how long after its line a kind has none; infinite for an owner who calls `close` in time.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        others: Callable[[Key], Key] | None = None,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        self._clock = clock
        self._others = others
        self._quiet_seconds = quiet_seconds
        self._windows: dict[Key, _Window] = {}

    def on_refusal(self, key: Key) -> tuple[Key, int] | None:
        """Count a refusal.

        Returns:
            If it is to have a line: the kind under which it counts, and how many of that kind have had no line since
            the one before. None if it is only counted.
        """
        now_seconds = self._clock()
        if key not in self._windows and len(self._windows) >= MOST_KEYS:
            if self._others is not None:
                key = self._others(key)
            else:
                del self._windows[next(iter(self._windows))]
        window = self._windows.get(key)
        if window is not None and now_seconds < window.began_seconds + self._quiet_seconds:
            window.left_out += 1
            return None
        left_out = self._windows.pop(key).left_out if window is not None else 0
        self._windows[key] = _Window(now_seconds)
        return key, left_out

    def close(self, key: Key) -> tuple[int, float]:
        """End a kind's quiet time: how many had no line, and since when, in seconds."""
        window = self._windows.pop(key, None)
        return (0, 0.0) if window is None else (window.left_out, self._clock() - window.began_seconds)
