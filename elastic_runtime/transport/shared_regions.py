"""All regions that peers on this host handed over, found by the connection whose messages refer to them."""

from __future__ import annotations

from elastic_runtime.transport.counters import Counters, Refusal
from elastic_runtime.transport.refusal_log import RefusalLog
from elastic_runtime.transport.sharing import RegionReader, ShareDoor, SharingRefused
from elastic_runtime.transport.sockets import Own

_MOST_UNKNOWN = 64
"""Connections that did not say yet who they are; more are a mistake or an attack."""


class SharedRegions:
    """Takes regions in, and gives views on them."""

    def __init__(self, own: Own, counters: Counters) -> None:
        self._own = own
        self._counters = counters
        self._log = RefusalLog(own.name, own.clock)
        self._door = ShareDoor()
        self._unknown: list[RegionReader] = []
        self._by_link: dict[bytes, RegionReader] = {}

    @property
    def address(self) -> str:
        """Of the abstract socket."""
        return self._door.address

    def pollables(self) -> list[int]:
        """What has news when it is readable."""
        return [self._door.fileno(), *(reader.fileno() for reader in (*self._unknown, *self._by_link.values()))]

    def pump(self) -> None:
        """Take in all that was handed over; never waits."""
        settings, own = self._own.settings, self._own
        try:
            while reader := self._door.accept(
                max_region_bytes=settings.max_region_bytes, max_regions=settings.max_regions
            ):
                if len(self._unknown) >= _MOST_UNKNOWN:
                    reader.close()
                    self._refuse("too many that do not say who they are")
                else:
                    self._unknown.append(reader)
        except SharingRefused as error:
            self._refuse(str(error))
        for reader in [*self._unknown, *self._by_link.values()]:
            try:
                alive = reader.read_letters(own.token, own.name)
            except SharingRefused as error:
                self._refuse(str(error))
                alive = False
            if not alive:
                self._drop(reader)
            elif reader.link and reader in self._unknown:
                self._unknown.remove(reader)
                self._by_link[reader.link] = reader

    def view(self, peer: str, link: bytes, number: int, start_byte: int, stop_byte: int) -> memoryview | None:
        """Bytes of a region that `peer` handed over on the connection `link`; None if it did not."""
        for attempt in range(2):
            reader = self._by_link.get(link)
            if reader is not None and reader.sender == peer:
                found = reader.view(number, start_byte, stop_byte)
                if found is not None:
                    return found
            if attempt == 0:
                self.pump()  # it was handed over before the message, on another socket
        return None

    def end(self, link: bytes) -> None:
        """The connection is gone; its regions are unmapped when the last view dies."""
        reader = self._by_link.get(link)
        if reader is not None:
            self._drop(reader)

    def close(self) -> None:
        """Nothing is handed over any more."""
        self._door.close()
        for reader in [*self._unknown, *self._by_link.values()]:
            self._drop(reader)

    def _drop(self, reader: RegionReader) -> None:
        reader.close()
        if reader in self._unknown:
            self._unknown.remove(reader)
        if self._by_link.get(reader.link) is reader:
            del self._by_link[reader.link]

    def _refuse(self, reason: str) -> None:
        self._counters.refuse(Refusal.SHARING)
        self._log.say(Refusal.SHARING, detail=reason)
