"""Time that each job has trained, right at any look: what is noted is when it began and ended to hold workers.

Both are on disk as they happen, so that an agent that is killed goes on counting. The disk may be full: what was seen
is kept here too, and written with the next change. What ended while no agent looked, with the machine or by itself,
ended with the last sign of life that it left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from cluster_agent.backends.local.job_table import JobTable, LocalJobRecord


class TrainingTimes:
    """Seconds with workers of each job, resizes included; they never go back.

    Args:
        table: of the jobs.
        now: Unix seconds.
    """

    def __init__(self, table: JobTable, now: Callable[[], float]) -> None:
        self._table = table
        self._now = now
        # A sum and a beginning are one value, which is replaced whole: users' threads read it.
        self._unwritten: dict[str, tuple[float, float]] = {}
        self._seen_training: set[str] = set()

    def note(self, name: str, *, trains: bool, last_sign: Callable[[], float] | None = None) -> None:
        """A job has workers now, or has none; nothing is written while that stays so.

        Args:
            last_sign: Unix seconds of the last that the job wrote; asked where its end was not seen by this process.
        """
        if trains:
            self._seen_training.add(name)
        record = self._table.get(name)
        if record is None:
            return
        total, since = self._counted(record)
        if trains == bool(since) and name not in self._unwritten:
            return
        now = self._now()
        if trains and not since:
            total, since = total or record.run_seconds, now  # a record of before has these alone
        elif since and not trains:
            ended = now if last_sign is None or name in self._seen_training else min(last_sign(), now)
            total, since = total + max(0.0, ended - since), 0.0
            self._seen_training.discard(name)
        self._unwritten[name] = total, since
        with contextlib.suppress(OSError, KeyError):  # a full disk; or it was deleted
            self._table.change(name, trained_seconds=total, training_since_unix_seconds=since)
            self._unwritten.pop(name, None)

    def seconds(self, record: LocalJobRecord, now_unix_seconds: float) -> float:
        """For how long a job has trained until a moment, which is no earlier than the last note."""
        total, since = self._counted(record)
        return total + (max(0.0, now_unix_seconds - since) if since else 0.0)

    def drop(self, name: str) -> None:
        """A job is deleted."""
        self._unwritten.pop(name, None)
        self._seen_training.discard(name)

    def _counted(self, record: LocalJobRecord) -> tuple[float, float]:
        stands = record.trained_seconds, record.training_since_unix_seconds
        return self._unwritten.get(record.name, stands)
