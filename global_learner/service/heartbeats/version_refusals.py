"""Refusals of versions, as agents tell them in heartbeats: counted, logged, and kept in the audit log.

One line for each cluster, version and reason, however often it is told and however often learner and agent start. An
agent repeats what it refuses with every heartbeat, so a line that could not be written, or not yet, is written later:
a cluster that makes refusals up fills no disk, as only versions that there are count, and so many a minute.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from global_learner.errors import LearnerError, TooOften
from global_learner.service.rate_limits import RateLimits
from global_learner.telemetry import OTHER_REFUSAL, LearnerTelemetry
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.signed_documents import VERSION_REFUSALS

_log = structlog.get_logger()

_PER_MINUTE, _AT_ONCE = 6.0, 20
"""Lines of one cluster; a sound agent refuses a version at a time, and looks at the next one a heartbeat later."""
_LINE = "refusal"

Note = Callable[[str, int, str], Awaitable[object]]
"""Writes a line that a cluster refuses a version, and why, unless it is there."""


class VersionRefusals:
    """What clusters refuse now; for one event loop.

    Args:
        note: durable when it returns; LearnerError if it cannot be written.
        clock: seconds, never back.
    """

    def __init__(self, note: Note, telemetry: LearnerTelemetry, clock: Callable[[], float]) -> None:
        self._note = note
        self._telemetry = telemetry
        self._rates = RateLimits({_LINE: _PER_MINUTE}, _AT_ONCE, clock)
        self._reported: dict[str, tuple[int, str]] = {}
        self._noted: dict[str, tuple[int, str]] = {}

    async def on_status(self, cluster: str, status: fleet_pb2.ClusterStatus) -> None:
        """Take what a registered cluster says in a heartbeat; never fails for want of room."""
        if not status.refused_version:
            if self._reported.pop(cluster, None) is not None:
                self._telemetry.on_refused_version(cluster, 0)
            return
        word = status.refused_reason if status.refused_reason in VERSION_REFUSALS else OTHER_REFUSAL
        version = status.refused_version
        self._telemetry.on_refused_version(cluster, version, word)
        if self._reported.get(cluster) != (version, status.refused_reason):
            self._reported[cluster] = (version, status.refused_reason)
            self._telemetry.refused_versions.labels(word).inc()
            _log.warning("version-refused", cluster=cluster, version=version, reason=status.refused_reason)
        if self._noted.get(cluster) == (version, word):
            return
        try:
            self._rates.take(cluster, _LINE)
            await self._note(cluster, version, word)
        except TooOften:
            return
        except LearnerError as error:
            _log.error("refusal-not-noted", cluster=cluster, version=version, reason=str(error), advice="tried again")
            return
        self._noted[cluster] = (version, word)
