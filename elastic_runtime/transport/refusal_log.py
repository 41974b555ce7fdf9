"""Log lines of what was refused: whoever knocks again and again fills counters, and not the log."""

from __future__ import annotations

import structlog

from elastic_runtime.transport.counters import Refusal
from elastic_runtime.transport.sockets import Clock

_QUIET_SECONDS = 10.0
"""Between two lines of one reason."""

_log = structlog.get_logger(__name__)


class RefusalLog:
    """Of one endpoint; each thread that refuses has its own."""

    def __init__(self, endpoint: str, clock: Clock) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._said_seconds: dict[Refusal, float] = {}
        self._unsaid: dict[Refusal, int] = {}

    def say(self, reason: Refusal, **fields: str) -> None:
        """One refusal; with how many went before it without a line. Never given a secret."""
        now = self._clock()
        said = self._said_seconds.get(reason)
        if said is not None and now < said + _QUIET_SECONDS:
            self._unsaid[reason] = self._unsaid.get(reason, 0) + 1
            return
        self._said_seconds[reason] = now
        _log.warning(
            "refused on the data plane",
            endpoint=self._endpoint,
            reason=reason.value,
            before_unsaid=self._unsaid.pop(reason, 0),
            **fields,
        )
