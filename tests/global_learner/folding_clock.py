"""Time that passes by hand, and what was put off until then."""

from collections.abc import Callable


class FoldingClock:
    """Seconds, and calls that are due at some."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.due.append((self.now + seconds, call))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        over = [call for at, call in self.due if at <= self.now]
        self.due = [(at, call) for at, call in self.due if at > self.now]
        for call in over:
            call()
