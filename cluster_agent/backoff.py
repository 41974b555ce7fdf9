"""How long to wait before a failed call is made again: doubling, bounded, jittered.

The whole wait is drawn at random below its bound ("full jitter"), so that a fleet whose learner comes back does not
knock all at once.
"""

from __future__ import annotations

import random

from cluster_agent.settings import RetrySettings


class Backoff:
    """One caller's waits; `reset` after a success."""

    def __init__(self, settings: RetrySettings, seed: str) -> None:
        self._settings = settings
        self._random = random.Random(seed)
        self._failures = 0

    def next_seconds(self) -> float:
        """The wait after one more failure; at least a tenth of its bound, or it would be a busy loop."""
        bound = min(self._settings.maximum_seconds, self._settings.initial_seconds * 2.0**self._failures)
        self._failures = min(self._failures + 1, 64)
        return self._random.uniform(0.1 * bound, bound)

    def reset(self) -> None:
        """The next failure is the first again."""
        self._failures = 0
