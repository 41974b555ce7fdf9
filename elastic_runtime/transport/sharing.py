"""Regions handed from one process to another on the same host, over a Unix socket.

A region has no name that could be opened; its descriptor is passed (SCM_RIGHTS). The socket lies in the abstract
namespace, so that it leaves no file behind either. Who asks for it is on the same host, in the same network namespace;
that memory can really be shared is tried with a probe before any message relies on it: the sender hands over one page
with a random number, and the reader proves what it read. Both sides belong to one user and prove the job's token.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import mmap
import os
import secrets
import socket
import struct
from collections.abc import Iterable
from typing import Any

from elastic_runtime.transport.authentication import sharing_proof
from elastic_runtime.transport.counters import EndpointRefusalLog
from elastic_runtime.transport.errors import TransportRefusal
from elastic_runtime.transport.regions import SEALS, Region, allocate_pages
from elastic_runtime.transport.settings import TransportSettings
from elastic_runtime.transport.sockets import LocalEnd

_CREDENTIALS = struct.Struct("3i")
_MOST_PACKET_BYTES = 4096
_PROBE_BYTES = mmap.PAGESIZE
_NONCE_BYTES = 32
_MOST_UNKNOWN = 64
"""Connections that did not say yet who they are; more are a mistake or an attack."""


class SharingRefused(Exception):
    """The other side is not who it should be, or handed over something else than a sealed region."""


class RegionSender:
    """One connection's regions, on the side that owns them."""

    def __init__(self, share_address: str) -> None:
        """Connect, which only works on the same host; does not wait.

        Raises:
            OSError: there is nobody.
        """
        self._given: set[int] = set()
        self._answer = ""  # of a reader that has read the probe
        self.proven = False  # whether it has
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            self._socket.connect("\0" + share_address)
            if _user_of(self._socket) != os.geteuid():
                raise ConnectionRefusedError("another user's socket")
        except OSError:
            self._socket.close()
            raise

    def introduce(self, token: str, sender: str, receiver: str, link: bytes) -> None:
        """Say who we are and send the probe; `take_answer` tells what became of it.

        Raises:
            OSError: this host cannot share memory.
        """
        probe = Region("probe", _PROBE_BYTES, shared=True, allocate=allocate_pages)
        if probe.descriptor is None:
            raise OSError("no shared memory here")
        nonce = secrets.token_bytes(_NONCE_BYTES)
        probe.memory[:_NONCE_BYTES] = nonce
        self._answer = sharing_proof(token, "reader", sender, receiver, link, nonce)
        proof = sharing_proof(token, "sender", sender, receiver, link, nonce)
        self._give({"hello": sender, "link": link.hex(), "proof": proof}, probe.descriptor)
        probe.forget_descriptor()

    def fileno(self) -> int:
        """For a poller."""
        return self._socket.fileno()

    def take_answer(self) -> None:
        """Read the answer to the probe if it has come.

        Raises:
            OSError: the reader refused, or is gone.
        """
        try:
            answer = self._socket.recv(_MOST_PACKET_BYTES)
        except BlockingIOError:
            return
        if not hmac.compare_digest(answer, self._answer.encode()):
            raise ConnectionResetError("the reader does not share memory with us")
        self.proven = True

    def give(self, region: Region) -> None:
        """Make sure that the reader can map `region`; it has it before any message that is sent later.

        Raises:
            OSError: the reader is gone, or does not take it.
        """
        if region.number not in self._given and region.descriptor is not None:
            self._give({"region": region.number, "size_bytes": region.size_bytes}, region.descriptor)
            self._given.add(region.number)

    def forget(self, region: Region) -> None:
        """The reader need not keep `region`."""
        if region.number in self._given:
            self._given.discard(region.number)
            self._socket.send(json.dumps({"forget": region.number}).encode())

    def close(self) -> None:
        """Let the reader unmap unused regions."""
        self._socket.close()

    def _give(self, packet: dict[str, Any], descriptor: int) -> None:
        socket.send_fds(self._socket, [json.dumps(packet).encode()], [descriptor])


class RegionReader:
    """One connection's regions, on the side that reads them; `sender` and `link` are known with the hello."""

    def __init__(self, connection: socket.socket, settings: TransportSettings) -> None:
        self._socket = connection
        self._settings = settings
        self._mapped: dict[int, memoryview] = {}
        self.sender = ""
        self.link = b""

    def fileno(self) -> int:
        """For a poller."""
        return self._socket.fileno()

    def close(self) -> None:
        """Regions stay mapped for as long as somebody holds a view on them."""
        self._mapped.clear()
        self._socket.close()

    def view(self, number: int, start_byte: int, stop_byte: int) -> memoryview | None:
        """Bytes of a region, read-only; None if it was not handed over or is smaller."""
        region = self._mapped.get(number)
        if region is None or not 0 <= start_byte <= stop_byte <= len(region):
            return None
        return region[start_byte:stop_byte]

    def read_packets(self, token: str, receiver: str) -> bool:
        """Take regions that were handed over; False when the sender is gone.

        Raises:
            SharingRefused: the sender has to be cut off.
        """
        while True:
            try:
                data, descriptors, flags, _ = socket.recv_fds(self._socket, _MOST_PACKET_BYTES, 4)
            except BlockingIOError:
                return True
            except OSError:
                return False
            try:
                if not data:
                    return False
                if flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
                    raise SharingRefused("a packet too long")
                self._read_packet(data, descriptors, token, receiver)
            except ConnectionError:
                return False  # before its hello was answered: its other connection was not let in, say
            except (ValueError, KeyError, TypeError, OSError) as error:
                raise SharingRefused(f"a packet that cannot be read: {error}") from error
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def _read_packet(self, data: bytes, descriptors: Iterable[int], token: str, receiver: str) -> None:
        packet = json.loads(data)
        if not self.link:
            (probe,) = descriptors
            sender, link = str(packet["hello"]), bytes.fromhex(packet["link"])
            with _map_sealed(probe, _PROBE_BYTES) as mapped:
                nonce = mapped[:_NONCE_BYTES]
            proof = sharing_proof(token, "sender", sender, receiver, link, nonce)
            if not hmac.compare_digest(proof.encode(), str(packet["proof"]).encode()):
                raise SharingRefused("wrong token")
            self._socket.send(sharing_proof(token, "reader", sender, receiver, link, nonce).encode())
            self.sender, self.link = sender, link
        elif "region" in packet:
            (descriptor,) = descriptors
            number, size_bytes = int(packet["region"]), int(packet["size_bytes"])
            settings = self._settings
            if not 0 < size_bytes <= settings.max_region_bytes or len(self._mapped) >= settings.max_regions:
                raise SharingRefused(f"region of {size_bytes} bytes, beside {len(self._mapped)} others")
            self._mapped[number] = memoryview(_map_sealed(descriptor, size_bytes))
        else:
            self._mapped.pop(int(packet["forget"]), None)


class SharedRegions:
    """All regions that peers on this host handed over, found by the connection whose messages refer to them."""

    def __init__(self, local: LocalEnd) -> None:
        self._local = local
        self._counters = local.counters
        self._log = EndpointRefusalLog(local.name, local.clock)
        self._unknown: list[RegionReader] = []
        self._by_link: dict[bytes, RegionReader] = {}
        self.address = f"fedl2-share-{secrets.token_hex(16)}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self._listener.bind("\0" + self.address)
        self._listener.listen(128)

    def pollables(self) -> list[int]:
        """Descriptors that are readable when there is news."""
        return [self._listener.fileno(), *(reader.fileno() for reader in (*self._unknown, *self._by_link.values()))]

    def pump(self) -> None:
        """Take in all that was handed over; never waits."""
        while self._accept():
            pass
        for reader in [*self._unknown, *self._by_link.values()]:
            try:
                alive = reader.read_packets(self._local.token, self._local.name)
            except SharingRefused as error:
                self._refuse(str(error))
                alive = False
            if not alive:
                self._drop(reader)
            elif reader.link and reader in self._unknown:
                self._unknown.remove(reader)
                self._by_link[reader.link] = reader

    def _accept(self) -> bool:
        """Take up the next connection; whether there was one that may stay."""
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return False
        connection.setblocking(False)
        if _user_of(connection) != os.geteuid():
            connection.close()
            self._refuse("another user's process")
            return False
        if len(self._unknown) >= _MOST_UNKNOWN:
            connection.close()
            self._refuse("too many that do not say who they are")
        else:
            self._unknown.append(RegionReader(connection, self._local.settings))
        return True

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
        self._listener.close()
        for reader in [*self._unknown, *self._by_link.values()]:
            self._drop(reader)

    def _drop(self, reader: RegionReader) -> None:
        reader.close()
        if reader in self._unknown:
            self._unknown.remove(reader)
        if self._by_link.get(reader.link) is reader:
            del self._by_link[reader.link]

    def _refuse(self, reason: str) -> None:
        self._counters.refusals[TransportRefusal.SHARING] += 1
        self._log.write(TransportRefusal.SHARING, detail=reason)


def _user_of(connection: socket.socket) -> int:
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(user)


def _map_sealed(descriptor: int, size_bytes: int) -> mmap.mmap:
    """Map for reading, once it is certain that nobody can shrink it."""
    if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & SEALS != SEALS:
        raise SharingRefused("memory that is not sealed")
    if os.fstat(descriptor).st_size != size_bytes:
        raise SharingRefused(f"region of {os.fstat(descriptor).st_size} bytes that was announced with {size_bytes}")
    return mmap.mmap(descriptor, size_bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, prot=mmap.PROT_READ)
