"""What our application has received and its senders do not know yet.

An acknowledgement is a frame of its own only when no message goes to the same peer: it wakes two threads on either
side. When the connection ends that carried such a message, it is said again.
"""

from __future__ import annotations

from collections.abc import Callable

from elastic_runtime.transport.wire import NOTHING, Acknowledgement

_MUCH_BYTES = 256 * 1024
"""An acknowledgement of less waits until there is nothing else to do, or a message to go with."""


class Receipts:
    """By peer."""

    def __init__(self, tell: Callable[[str, int], None]) -> None:
        """`tell(peer, sequence)` sends one on its own."""
        self._tell = tell
        self._due: dict[str, Acknowledgement] = {}
        self._newest: dict[str, Acknowledgement] = {}
        self._due_bytes = 0

    def add(self, peer: str, link: bytes, sequence: int, size_bytes: int) -> None:
        """The application is about to have this message."""
        self._due[peer] = self._newest[peer] = Acknowledgement(link, sequence)
        self._due_bytes += size_bytes

    def take(self, peer: str) -> Acknowledgement:
        """For a message that goes to `peer` anyway."""
        return self._due.pop(peer, NOTHING)

    def repeat(self, peer: str) -> None:
        """What was told with messages may not have come to `peer`."""
        if peer in self._newest:
            self._due[peer] = self._newest[peer]

    def end(self, peer: str) -> None:
        """The connection that they are for is gone."""
        self._due.pop(peer, None)
        self._newest.pop(peer, None)

    def tell_much(self) -> None:
        """Send them if they make up much of the senders' windows."""
        if self._due_bytes >= _MUCH_BYTES:
            self.tell_all()

    def tell_all(self) -> None:
        """Send what is due."""
        due, self._due, self._due_bytes = self._due, {}, 0
        for peer, acknowledgement in due.items():
            self._tell(peer, acknowledgement.sequence)
