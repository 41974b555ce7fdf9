"""Where the loop leaves what it lived through, and the trainer picks it up; the loop never waits here.

Bounded: when the trainer is behind (or the learner away) the oldest experience makes room, and is counted.
"""

from __future__ import annotations

import threading
from collections import deque

from policy_net.learning.replay import Experience


class ExperienceQueue:
    """A bounded queue that counts what it lost; also the `Backlog` that lockstep watches."""

    def __init__(self, capacity: int) -> None:
        self._entries: deque[Experience] = deque()
        self._capacity = capacity
        self._changed = threading.Condition()
        self._taken = 0
        self._worked_off = 0
        self.dropped = 0

    @property
    def waiting(self) -> int:
        """Decisions that have not been learned from yet, the one in the trainer's hands included."""
        with self._changed:
            return len(self._entries) + self._taken - self._worked_off

    @property
    def worked_off(self) -> int:
        """Decisions that the trainer is done with."""
        return self._worked_off

    def put(self, experience: Experience) -> None:
        """Leave one; drops the oldest if there is no room."""
        with self._changed:
            if len(self._entries) >= self._capacity:
                self._entries.popleft()
                self.dropped += 1
            self._entries.append(experience)
            self._changed.notify()

    def take(self, timeout_seconds: float) -> Experience | None:
        """The oldest; None if none came in time."""
        with self._changed:
            if not self._entries:
                self._changed.wait(timeout_seconds)
            if not self._entries:
                return None
            self._taken += 1
            return self._entries.popleft()

    def done(self) -> None:
        """One that was taken has been worked off."""
        with self._changed:
            self._worked_off += 1
