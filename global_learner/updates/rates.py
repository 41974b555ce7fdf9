"""Rate of each cluster's updates: no faster for long than its decisions can produce them.

A token bucket a cluster. An agent sends at most one update a decision, and after an outage what its queue held, which
the bucket's depth allows for. Who is faster is told when to come again and keeps its update: agents wait and offer it
again, as to a learner that is busy. Answers that apply nothing (duplicates, rejections) have a bucket of their own, as
deep and as fast; who empties it is answered after a pause, so that asking again at once costs the others little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from global_learner.errors import TooFast


@dataclass(slots=True)
class _Bucket:
    tokens: float
    seconds: float


class UpdateRates:
    """The buckets of all clusters that sent something since the start.

    Args:
        per_second: updates that a cluster may send in the long run; 0: no limit.
        burst: how many it may send at once after a while of silence.
    """

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}
        self._unapplied: dict[str, _Bucket] = {}

    def admit(self, cluster: str) -> None:
        """See that a cluster may send an update now.

        Raises:
            TooFast: it may not, and when it may.
        """
        if self._per_second == 0.0:
            return
        bucket = self._filled(self._buckets, cluster)
        if bucket.tokens < 1.0:
            seconds = (1.0 - bucket.tokens) / self._per_second
            raise TooFast(
                f"cluster {cluster} sent more updates than its decisions can make: {self._burst:.0f} at once and "
                f"{self._per_second:g} a second in the long run (ingest.updates_per_second); send this one again in "
                f"{seconds:.1f} s"
            )

    def on_applied(self, cluster: str) -> None:
        """Count an update that was applied."""
        if self._per_second != 0.0:
            self._filled(self._buckets, cluster).tokens -= 1.0

    def is_beyond(self, cluster: str) -> bool:
        """Count an answer that applies nothing; whether the cluster had more of them than it may send updates."""
        if self._per_second == 0.0:
            return False
        bucket = self._filled(self._unapplied, cluster)
        if bucket.tokens < 1.0:
            return True
        bucket.tokens -= 1.0
        return False

    def _filled(self, buckets: dict[str, _Bucket], cluster: str) -> _Bucket:
        now = self._clock()
        bucket = buckets.setdefault(cluster, _Bucket(self._burst, now))
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.seconds) * self._per_second)
        bucket.seconds = now
        return bucket
