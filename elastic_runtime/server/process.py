"""A parameter server's process: the loop that takes views and messages, one at a time, and reports."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

import structlog

from elastic_runtime.control.member_link import MemberLink, member_clock
from elastic_runtime.errors import ElasticError
from elastic_runtime.member.environment import MemberEnvironment
from elastic_runtime.protocol.plan import TaskRole, View
from elastic_runtime.server.parameter_server import ParameterServer
from elastic_runtime.transport import Endpoint, Message
from foundation.signal_event import SignalEvent

_log = structlog.get_logger()
_TICK_SECONDS = 0.05
"""When nothing comes, blocks are copied for a checkpoint and lost messages made up for so often."""
_RETRY_SECONDS = 0.001
"""Until what found no room is tried again."""
_LEAVE_SECONDS = 5.0
"""For the coordinator to take the last report."""


class ServerProcess:
    """One parameter server, from its registration to its end.

    Args:
        clock: seconds in which this process ran; None: `member_clock`.
        register_seconds: how long to wait for the coordinator and for the first worker's model.
        patience_seconds: how long to go on without a coordinator when there is nothing to do.
    """

    def __init__(
        self,
        environment: MemberEnvironment,
        clock: Callable[[], float] | None = None,
        register_seconds: float = 300.0,
        patience_seconds: float = 300.0,
    ) -> None:
        self._environment = environment
        self._clock = clock or member_clock()
        self._register_seconds = register_seconds
        self._patience_seconds = patience_seconds
        self._stopped = SignalEvent()
        self._mailbox: View | None = None
        self._lock = threading.Lock()
        self._endpoint: Endpoint | None = None
        self._serving = self._asked = False
        self._drain_seconds: float | None = None

    def drain(self) -> None:
        """Ask to be let go, and serve until others have the blocks; the second time, or after the grace, end at once.

        For a signal's handler: takes no lock.

        Raises:
            SystemExit: it serves nobody yet.
        """
        if not self._serving:
            raise SystemExit(0)
        if self._drain_seconds is not None:
            self.stop()
        else:
            self._drain_seconds = self._clock()

    def stop(self) -> None:
        """End soon; from any thread or a signal's handler."""
        self._stopped.set()
        if self._endpoint is not None:
            self._endpoint.wake()

    def run(self) -> None:
        """Serve until the job needs this server no more.

        Raises:
            ElasticError: the job failed, this server was taken for dead, or its checkpoint cannot be read.
        """
        environment = self._environment
        with (
            environment.open_endpoint() as endpoint,
            closing(environment.open_link(TaskRole.SERVER, self._clock)) as link,
        ):
            self._endpoint = endpoint
            registration = link.register(endpoint.address, deadline_seconds=self._register_seconds)
            link.follow(self._receive)  # before its memory is made, which may take long: it is alive
            server = ParameterServer(environment, endpoint, link, registration, self._clock)
            self._serving = True
            self._serve(endpoint, link, server)

    def _serve(self, endpoint: Endpoint, link: MemberLink, server: ParameterServer) -> None:
        tick_seconds = self._clock() + _TICK_SECONDS
        while not self._stopped.is_set():
            kept = server.outbox.flush()
            event = endpoint.receive(_RETRY_SECONDS if kept else max(tick_seconds - self._clock(), 0.0))
            view = self._next_view()
            if view is not None and not server.act(view):
                break
            if isinstance(event, Message):
                server.handle(event)
            if self._clock() >= tick_seconds:
                server.tick()
                tick_seconds = self._clock() + _TICK_SECONDS
                self._watch(link)
            server.report()
        server.leave()
        link.report(left=True)
        link.flush(_LEAVE_SECONDS)

    def _receive(self, view: View) -> None:
        with self._lock:
            self._mailbox = view
        if self._endpoint is not None:
            self._endpoint.wake()

    def _next_view(self) -> View | None:
        with self._lock:
            view, self._mailbox = self._mailbox, None
            return view

    def _watch(self, link: MemberLink) -> None:
        if self._drain_seconds is not None:
            self._ask_to_leave(link, self._clock() - self._drain_seconds)
        if link.failure is not None:
            raise link.failure
        if link.expelled.is_set():
            raise ElasticError(f"the coordinator took {self._environment.task} for dead; a new one is started instead")
        if link.coordinator_silent_seconds > self._patience_seconds:
            raise self._environment.unreachable(link.coordinator_silent_seconds)

    def _ask_to_leave(self, link: MemberLink, drained_seconds: float) -> None:
        if not self._asked:
            self._asked = True
            _log.info("drain-requested", grace_seconds=self._environment.grace_seconds)
            link.report(draining=True)
        elif drained_seconds >= self._environment.grace_seconds:
            _log.warning("drain-expired", waited_seconds=round(drained_seconds, 1))
            self._stopped.set()
