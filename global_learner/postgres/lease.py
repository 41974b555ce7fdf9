"""Lease of the active learner, as this process sees it: until when it may act, by a clock that nobody sets.

The time counts from before the request that renewed it, and ends a tenth early: when another learner may take the
lease, this one has stopped. Where no database is shared there is no lease, and nothing to check.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from global_learner.errors import DatabaseAway, LeaseLost, NotActive
from global_learner.postgres.lease_table import LeaseTable

_log = structlog.get_logger()

_SHARE = 0.9
"""Of the lease's time this one acts; the rest is for clocks that do not run alike."""
_RENEWALS = 5
"""Renewals in a lease's time: some may fail."""


def boot_seconds() -> float:
    """Seconds that also pass while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Lease:
    """What is held, under which number and until when; may be asked from any thread.

    Args:
        fence: the fencing number.
        seconds: how long it holds from a renewal.
        asked_at: the clock before the request that took it.
        clock: seconds.
    """

    def __init__(self, fence: int, seconds: float, asked_at: float, clock: Callable[[], float] = boot_seconds) -> None:
        self.fence = fence
        self.seconds = seconds
        self._clock = clock
        self._until = asked_at + _SHARE * seconds
        self._lost: LeaseLost | None = None

    def check(self) -> None:
        """See that this learner is the active one, now.

        Raises:
            LeaseLost: another one is; it never comes back.
            NotActive: that is not known, as the database has not said so lately.
        """
        refusal = self.refusal
        if refusal is not None:
            raise refusal

    @property
    def refusal(self) -> NotActive | None:
        """Why this learner may not act now, or None."""
        if self._lost is not None:
            return self._lost
        late = self._clock() - self._until
        if late < 0.0:
            return None
        return NotActive(
            f"the lease was not renewed, {late:.1f} s too long: the database does not answer, or this process was held "
            "up; nothing is taken until it is"
        )

    def renewed(self, asked_at: float) -> None:
        """Note a renewal that was asked for at this time."""
        self._until = max(self._until, asked_at + _SHARE * self.seconds)

    def lose(self, error: LeaseLost) -> None:
        """Note that another learner has it."""
        self._lost = error


class LeaseKeeper:
    """Renews a lease until it is lost, or given back.

    Args:
        lost: is called once if another learner took it.
        clock: seconds, as the lease's.
    """

    def __init__(
        self,
        lease: Lease,
        table: LeaseTable,
        lost: Callable[[BaseException], None],
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        self._lease = lease
        self._table = table
        self._lost = lost
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lease")
        self._away = False

    async def keep(self) -> None:
        """Renew, several times in a lease's time, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            asked_at = self._clock()
            try:
                await loop.run_in_executor(self._thread, self._table.renew, self._lease.fence, self._lease.seconds)
            except LeaseLost as error:
                _log.error("lease-lost", fence=self._lease.fence)
                self._lease.lose(error)
                self._lost(error)
                return
            except DatabaseAway as error:
                if not self._away:
                    _log.error("lease-not-renewed", fence=self._lease.fence, reason=str(error))
                self._away = True
            else:
                self._lease.renewed(asked_at)
                if self._away:
                    _log.warning("lease-renewed-again", fence=self._lease.fence)
                self._away = False
            await asyncio.sleep(self._lease.seconds / _RENEWALS)

    async def close(self) -> None:
        """Give the lease back, so that a standby need not wait; where that fails, it runs out."""
        loop = asyncio.get_running_loop()
        if not isinstance(self._lease.refusal, LeaseLost):
            try:
                await loop.run_in_executor(self._thread, self._table.release, self._lease.fence)
            except DatabaseAway as error:
                _log.warning("lease-not-given-back", fence=self._lease.fence, reason=str(error))
        self._thread.shutdown()
