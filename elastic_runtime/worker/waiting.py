"""Waits of a worker for values: it takes what comes, asks for what does not, and says who keeps it waiting."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from elastic_runtime.errors import ProtocolError
from elastic_runtime.member.outbox import Outbox
from elastic_runtime.protocol.block_runs import Payload
from elastic_runtime.protocol.messages import Header, Outgoing, unpack
from elastic_runtime.protocol.plan import View
from elastic_runtime.transport import Message
from elastic_runtime.worker.membership import Membership
from elastic_runtime.worker.protocol.part import WorkerPart

_log = structlog.get_logger()
_RECEIVE_SECONDS = 0.05
_RETRY_SECONDS = 0.001
"""Until what found no room is tried again."""
_ASK_FIRST_SECONDS = 0.25
_ASK_MOST_SECONDS = 5.0
"""Between two questions for what is outstanding: the first is early, as a connection may just have been made."""
_SUSPECT_SECONDS = 5.0
"""A parameter server that owes values for so long is named to the coordinator."""


class WorkerWaits:
    """One worker's waits, one after the other.

    Args:
        handle: acts on a message: peer, header and payload; returns what is to be sent.
    """

    def __init__(
        self,
        member: Membership,
        outbox: Outbox,
        expected: WorkerPart,
        handle: Callable[[str, Header, Payload], list[Outgoing]],
    ) -> None:
        self._member = member
        self._outbox = outbox
        self._expected = expected
        self._handle = handle
        self._clock = member.clock
        self._suspected = False

    def until_complete(self, goes_on: Callable[[View], bool]) -> bool:
        """Wait until everything is there; whether it is.

        Args:
            goes_on: acts on the newest view whenever no message has come for a while; False ends the wait.

        Raises:
            ElasticError: see `Membership.check`.
        """
        try:
            return self._wait(goes_on)
        finally:
            if self._suspected:
                self._suspected = False
                self._member.link.report(suspects=())

    def _wait(self, goes_on: Callable[[View], bool]) -> bool:
        ask_seconds = _ASK_FIRST_SECONDS
        began = asked = self._clock()
        lost = self._member.view().lost_servers
        while not self._expected.is_complete:
            kept = self._outbox.flush()
            event = self._member.endpoint.receive(_RETRY_SECONDS if kept else _RECEIVE_SECONDS)
            if isinstance(event, Message):
                self._take(event)
                asked, ask_seconds = self._clock(), _ASK_FIRST_SECONDS
                continue
            view = self._member.view()
            if not goes_on(view):
                return False
            now = self._clock()
            waited = now - began
            if view.lost_servers != lost:  # what one owed others owe now, who do not know what was delivered
                lost, ask_seconds = view.lost_servers, 0.0
            if now - asked >= ask_seconds:
                ask_seconds = max(ask_seconds, _ASK_FIRST_SECONDS / 2)
                self._outbox.send(self._expected.ask())
                asked, ask_seconds = now, min(ask_seconds * 2, _ASK_MOST_SECONDS)
            if waited >= _SUSPECT_SECONDS:
                self._suspected = True
                self._member.link.report(suspects=tuple(sorted(self._expected.owners_waited_for())))
            self._member.check(waited)
        return True

    def _take(self, message: Message) -> None:
        try:
            self._outbox.send(self._handle(message.peer, unpack(message.header), message.payload))
        except ProtocolError as error:
            _log.warning("message-refused", peer=message.peer, error=str(error))
