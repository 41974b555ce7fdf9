"""Deadlines of a state machine that has no clock of its own: each begins when it is first asked for."""

from __future__ import annotations


class Timers:
    """Named deadlines; none survives a restart, which gives everybody the whole time again."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}

    def passed(self, name: str, now: float, seconds: float) -> bool:
        """Whether `seconds` have gone by since this name was first asked for."""
        return now - self._began.setdefault(name, now) >= seconds

    def runs(self, name: str) -> bool:
        """Whether this name was asked for and not cleared since."""
        return name in self._began

    def clear(self, *names: str) -> None:
        """What was waited for has come."""
        for name in names:
            self._began.pop(name, None)

    def restart(self, name: str, now: float) -> None:
        """Begin anew."""
        self._began[name] = now
