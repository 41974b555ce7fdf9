"""This agent's standing with the learner: registered or not, and under which incarnation.

The heartbeat and the trainer run in threads of their own and share one session, so that a learner which asks for a new
registration gets one, not two.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import structlog

from cluster_agent.fleet.learner import Learner, Registration
from cluster_agent.refusals import Refusals

_log = structlog.get_logger()


class Session:
    """Registers on demand; safe to use from several threads."""

    def __init__(
        self,
        learner: Learner,
        spec_digest: str,
        job_types: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.refusals = Refusals(clock)
        self._learner = learner
        self._spec_digest = spec_digest
        self._job_types = job_types
        self._registration: Registration | None = None
        self._lock = threading.Lock()

    @property
    def current(self) -> Registration | None:
        """The registration in force, without asking for one."""
        return self._registration

    def registered(self) -> Registration:
        """The registration in force; asks for one if there is none.

        Raises:
            LearnerUnreachable, LearnerRefused: as `Learner.register`.
        """
        with self._lock:
            if self._registration is None:
                self._registration = self._learner.register(self._spec_digest, self._job_types)
                _log.info(
                    "registered",
                    incarnation=self._registration.incarnation,
                    head_step=self._registration.head_step,
                    learning=self._registration.learning,
                )
            return self._registration

    def forget(self, incarnation: int) -> None:
        """The learner does not know this incarnation (any more); a newer one is left alone."""
        with self._lock:
            if self._registration is not None and self._registration.incarnation == incarnation:
                self._registration = None
