"""Live page's answers: asked on the HTTP server's threads, worked out on the learner's event loop.

The page needs no certificate and the audit log does, so acts of operators stand there without names and reasons.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError

from foundation.page import as_json
from global_learner.errors import LearnerError
from global_learner.report.content import report_content
from global_learner.report.page import live_page, live_policy
from policy_net.exchange.generated import fleet_pb2

_ANSWER_SECONDS = 5.0
"""Longest wait for a busy learner; the page asks again by itself."""
_FRESH_SECONDS = 1.0
"""All pages get the same answer for so long, also that there is none."""


class LiveReport:
    """Page and data; safe to ask from any thread but the event loop's.

    Args:
        report: answers of the learner; called on `loop`.
    """

    def __init__(
        self,
        report: Callable[[], Awaitable[fleet_pb2.GetReportReply]],
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float] = time.monotonic,
        patience_seconds: float = _ANSWER_SECONDS,
    ) -> None:
        self._report = report
        self._loop = loop
        self._clock = clock
        self._lock = threading.Lock()
        self.patience_seconds = patience_seconds
        self._data: bytes | None = None
        self._polled_seconds = -float("inf")
        self.page = live_page().encode()
        self.policy = live_policy()

    def data(self) -> bytes | None:
        """The content as JSON; None if the learner does not answer in time."""
        with self._lock:
            if self._clock() - self._polled_seconds >= _FRESH_SECONDS:
                self._data = self._work_out()
                self._polled_seconds = self._clock()
            return self._data

    def _work_out(self) -> bytes | None:
        asked = asyncio.run_coroutine_threadsafe(self._ask(), self._loop)
        try:
            return as_json(report_content(asked.result(self.patience_seconds), named=False)).encode()
        except (TimeoutError, CancelledError, LearnerError):
            asked.cancel()
            return None  # busy, or about to end; whoever asks is told so and asks again

    async def _ask(self) -> fleet_pb2.GetReportReply:
        return await self._report()
