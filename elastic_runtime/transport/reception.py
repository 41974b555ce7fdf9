"""Waiting for what comes to an endpoint: messages from peers, news of connections, or a call from another thread."""

from __future__ import annotations

import os
from collections import deque

from elastic_runtime.transport.inbound import Inbound
from elastic_runtime.transport.links import Links
from elastic_runtime.transport.message import Event, PeerLost, Way
from elastic_runtime.transport.sockets import LocalEnd, poll

_PUMP_EVERY_MESSAGES = 16
"""News of connections are looked at so often while messages come without a pause."""
_FRAME_SECONDS = 0.005
"""So long only the next frame is waited for, which is much cheaper; news of connections may be so late."""


class Reception:
    """Of one endpoint. One thread uses it, except for `wake`.

    Args:
        inbound: what comes from peers.
        links: the ways to them, which have news too.
        events: news of the links.
        local: the endpoint.
    """

    def __init__(self, inbound: Inbound, links: Links, events: deque[Event], local: LocalEnd) -> None:
        self._inbound = inbound
        self._links = links
        self._events = events
        self._counters = local.counters
        self._clock = local.clock
        self._since_pump = 0
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def next(self, timeout_seconds: float) -> Event | None:
        """See `Endpoint.receive`."""
        deadline = self._clock() + timeout_seconds
        expired = False
        self._inbound.receipts.report_much()
        while True:
            self._since_pump += 1
            if self._since_pump >= _PUMP_EVERY_MESSAGES:
                self._pump()
            event = self._events.popleft() if self._events else self._inbound.take()
            if isinstance(event, PeerLost) and event.way is Way.OUT:
                self._inbound.receipts.repeat(event.peer)
            if event is not None:
                return event
            if expired:
                return None
            self._inbound.receipts.report_all()
            left = deadline - self._clock()
            if left > 0.0 and not self._links.is_holding and self._wait_for_frame(min(left, _FRAME_SECONDS)):
                continue
            expired = left <= 0.0
            if self._wait(left):
                self._pump()
                if self._woken():
                    return None

    def wake(self) -> None:
        """Make `next` return None soon, once; from any thread."""
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Nothing is waited for any more."""
        os.close(self._wake)

    def _pump(self) -> None:
        self._since_pump = 0
        self._inbound.receipts.report_all()
        self._inbound.pump()
        self._links.pump()

    def _wait_for_frame(self, seconds: float) -> bool:
        """Whether a frame comes in time, and nothing else that cannot wait."""
        ready = poll([self._inbound.socket, self._wake], seconds)
        return len(ready) == 1 and self._inbound.socket in ready

    def _wait(self, left_seconds: float) -> bool:
        """Until something comes; whether it is more than a frame."""
        pollables = [*self._inbound.pollables(), *self._links.pollables(), self._wake]
        ready = poll(pollables, min(left_seconds, self._links.seconds_to_next_step()))
        return len(ready) != 1 or self._inbound.socket not in ready

    def _woken(self) -> bool:
        try:
            return os.eventfd_read(self._wake) > 0
        except BlockingIOError:
            return False
