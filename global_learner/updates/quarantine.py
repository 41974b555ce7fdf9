"""Quarantine of clusters: their updates are not looked at, because too many of them were faulty.

A cluster has a budget of faults, a leaky bucket: each faulty update fills it by one, each sound one empties it by a
little. So a burst of faults ends in quarantine, and so does a constant share of them, however it is spread; rare ones
are forgiven. How long a quarantine lasts is counted on a clock that nobody sets. What remains of each, and of each
budget, outlives the learner (`quarantine_record.py`); time in which no learner runs does not count. A quarantine is on
disk before the first update is turned away for it; what changes with every update is written down once a minute.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from global_learner.errors import FAULTY, Rejection, UpdateRejected
from global_learner.section_settings import QuarantineSettings
from global_learner.storage.commits import Commits
from global_learner.updates.quarantine_record import Judgements, QuarantineRecord

_log = structlog.get_logger()

_EVENTS_KEPT = 1000
_KEEP_SECONDS = 60.0
"""What remains is written down this often while clusters push: a crash makes a quarantine at most so much longer, and
forgets at most the faults of so long."""


class Quarantine:
    """Remembers how each cluster's updates were judged; nothing depends on `wall_clock`, which is for people.

    Raises:
        StateUnusable: the record in the state directory is damaged, gone or an older one.
    """

    def __init__(
        self,
        settings: QuarantineSettings,
        state_dir: Path,
        wall_clock: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        commits: Commits | None = None,
    ) -> None:
        self._settings = settings
        self._wall_clock = wall_clock
        self._clock = clock
        self._record = QuarantineRecord(state_dir, commits, wall_clock())
        found, now = self._record.kept, clock()
        self._ends = {cluster: now + seconds for cluster, seconds in found.remaining_seconds.items()}
        self._events: deque[Mapping[str, Any]] = deque(found.events, maxlen=_EVENTS_KEPT)
        # In parts of a fault, of which a sound update takes back one.
        most, parts = (settings.rejections - 1) * settings.within_updates, settings.within_updates
        self._faults = {cluster: min(round(parts * level), most) for cluster, level in found.faults.items()}
        self._kept_at = now
        self._changed = self._record.is_old
        if self._changed:
            self.keep()

    @property
    def count(self) -> int:
        """Clusters that are in quarantine now."""
        return sum(self.remaining(cluster) > 0.0 for cluster in list(self._ends))

    def remaining(self, cluster: str) -> float:
        """Seconds until a cluster's quarantine ends; 0 if it is in none."""
        return max(0.0, self._ends.get(cluster, 0.0) - self._clock()) if cluster in self._ends else 0.0

    def until(self, cluster: str) -> float | None:
        """When a cluster's quarantine ends (Unix seconds), for people; None if it is in none."""
        seconds = self.remaining(cluster)
        return self._wall_clock() + seconds if seconds else None

    def admit(self, cluster: str) -> None:
        """Check that a cluster's updates are looked at.

        Raises:
            UpdateRejected: they are not.
        """
        seconds = self.remaining(cluster)
        if (self._ends or self._changed) and self._clock() - self._kept_at >= _KEEP_SECONDS:
            self.keep()
        if seconds:
            raise UpdateRejected(
                Rejection.QUARANTINED,
                f"cluster {cluster} is in quarantine for {seconds:.0f} s more: too many of its updates were faulty; "
                "mend the agent, then `policyctl cluster release` it",
            )

    def on_judged(self, cluster: str, reason: Rejection | None) -> None:
        """Note how an update was judged; None if it was accepted. Reasons that befall sound agents do not count."""
        if self._settings.seconds == 0.0 or (reason is not None and reason not in FAULTY):
            return
        parts = self._settings.within_updates
        faults = self._faults.pop(cluster, 0)
        self._changed = self._changed or faults > 0 or reason is not None
        if reason is None:
            if faults > 1:
                self._faults[cluster] = faults - 1
            return
        faults += parts
        if faults <= (self._settings.rejections - 1) * parts:
            self._faults[cluster] = faults
            return
        self._ends[cluster] = self._clock() + self._settings.seconds
        self._note("quarantined", cluster, until_unix_seconds=self.until(cluster), reason=str(reason))

    def release(self, cluster: str) -> bool:
        """End a quarantine before its time; False if there is none."""
        if not self.remaining(cluster):
            return False
        del self._ends[cluster]
        self._note("released", cluster)
        return True

    def keep(self) -> None:
        """Write down what is known; where that fails, it is tried again with the next update."""
        now, parts = self._clock(), self._settings.within_updates
        expired = [cluster for cluster, end in self._ends.items() if end <= now]
        for cluster in expired:
            del self._ends[cluster]
        self._changed = self._changed or bool(expired)
        if not (self._ends or self._changed):
            return
        remaining = {cluster: end - now for cluster, end in self._ends.items()}
        faults = {cluster: level / parts for cluster, level in self._faults.items()}
        try:
            self._record.write(Judgements(remaining, faults, list(self._events)))
            self._kept_at, self._changed = now, False
        except OSError as error:
            self._kept_at = now - _KEEP_SECONDS
            _log.error("quarantine-not-kept", file=str(self._record.path), reason=error.strerror or str(error))

    def _note(self, event: str, cluster: str, **facts: Any) -> None:
        self._events.append({"event": event, "cluster": cluster, "unix_seconds": self._wall_clock(), **facts})
        self._changed = True
        self.keep()
        _log.warning(f"cluster-{event}", cluster=cluster, **facts)
