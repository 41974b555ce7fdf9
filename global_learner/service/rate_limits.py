"""Rates of calls: a token bucket for each caller and method, of those methods that have a rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from global_learner.errors import TooOften

_MOST_BUCKETS = 8192
"""Buckets that are full again are forgotten beyond so many; a caller without one has a full one."""


class RateLimits:
    """Token buckets; for one event loop.

    Args:
        per_minute: calls a minute of one caller, by method; others have no rate.
        burst: calls at once, after a pause.
    """

    def __init__(self, per_minute: Mapping[str, float], burst: int, clock: Callable[[], float]) -> None:
        self._per_second = {method: rate / 60.0 for method, rate in per_minute.items()}
        self._burst = float(burst)
        self._clock = clock
        self._full_at: dict[tuple[str, str], float] = {}
        """When a bucket will be full again; that it lacks `rate` times what is left until then follows."""

    def take(self, caller: str, method: str) -> None:
        """Count one call.

        Raises:
            TooOften: the bucket is empty; the call does not count.
        """
        rate = self._per_second.get(method)
        if rate is None:
            return
        now = self._clock()
        full_at = max(now, self._full_at.get((caller, method), now)) + 1.0 / rate
        if full_at - now > self._burst / rate:
            wait = full_at - now - self._burst / rate
            raise TooOften(f"{method}: more than {60.0 * rate:g} a minute; come again in {wait:.1f} s")
        self._full_at[caller, method] = full_at
        if len(self._full_at) > _MOST_BUCKETS:
            self._full_at = {key: moment for key, moment in self._full_at.items() if moment > now}
