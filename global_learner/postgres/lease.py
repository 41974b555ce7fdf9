"""Lease of the active learner, as this process sees it: until when it may act, by a clock that nobody sets.

The time counts from before the request that renewed it, and ends a tenth early: when another learner may take the
lease, this one has stopped. Where no database is shared there is no lease, and nothing to check.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from foundation.clocks import boot_seconds
from global_learner.errors import LearnerError, LeaseLost, NotActive
from global_learner.postgres.lease_table import LeaseTable

_log = structlog.get_logger()

_SHARE = 0.9
"""Of the lease's time this one acts; the rest is for clocks that do not run alike."""
_RENEWALS = 5
"""Renewals in a lease's time: some may fail."""
_CLOSE_SECONDS = 5.0
"""How long a database may take to hear that the lease is given back."""


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
    """Renews a lease in a thread of its own, whatever else the process is at, until it is lost or given back.

    Args:
        lost: is called once, in that thread, if another learner took it.
        clock: seconds, as the lease's.
    """

    def __init__(
        self,
        lease: Lease,
        table: LeaseTable,
        lost: Callable[[LeaseLost], None],
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        self._lease = lease
        self._table = table
        self._lost = lost
        self._clock = clock
        self._away = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def close(self) -> None:
        """Give the lease back, so that a standby need not wait; where that fails, it runs out."""
        self._ending.set()
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            _log.warning("lease-not-given-back", fence=self._lease.fence, reason="the database does not answer")

    def renew(self) -> bool:
        """Renew once; False if it is lost."""
        asked_at = self._clock()
        try:
            self._table.renew(self._lease.fence, self._lease.seconds)
        except LeaseLost as error:
            _log.error("lease-lost", fence=self._lease.fence)
            self._lease.lose(error)
            self._lost(error)
            return False
        except LearnerError as error:
            if not self._away:
                _log.error("lease-not-renewed", fence=self._lease.fence, reason=str(error))
            self._away = True
            return True
        self._lease.renewed(asked_at)
        if self._away:
            _log.warning("lease-renewed-again", fence=self._lease.fence)
        self._away = False
        return True

    def _keep(self) -> None:
        while not self._ending.wait(self._lease.seconds / _RENEWALS):
            if not self.renew():
                return
        try:
            self._table.release(self._lease.fence)
        except LearnerError as error:
            _log.warning("lease-not-given-back", fence=self._lease.fence, reason=str(error))
