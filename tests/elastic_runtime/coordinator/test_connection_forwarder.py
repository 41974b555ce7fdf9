"""Connections to a listening socket that outlives who serves it: every byte gets through, and nobody else's."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from elastic_runtime.coordinator.connection_forwarder import ConnectionForwarder

BIG = 8 * 1024 * 1024


class Echo:
    """Answers each connection with what it was sent, once that has ended."""

    def __init__(self) -> None:
        self.name = f"fedl2-test-{secrets.token_hex(8)}"
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(f"\0{self.name}")
        self._socket.listen(64)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                one, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(one,), daemon=True).start()

    @staticmethod
    def _answer(one: socket.socket) -> None:
        with one, contextlib.suppress(OSError):  # whose caller has gone
            one.sendall(b"".join(iter(lambda: one.recv(65536), b"")))

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def asked(address: tuple[str, int], data: bytes) -> bytes:
    with socket.create_connection(address, 100.0) as one:
        sender = threading.Thread(target=lambda: (one.sendall(data), one.shutdown(socket.SHUT_WR)))
        sender.start()
        answer = b"".join(iter(lambda: one.recv(65536), b""))
        sender.join()
    return answer


def test_all_bytes_of_many_connections_get_through_both_ways(echo: Echo, listener: socket.socket) -> None:
    passing = ConnectionForwarder(listener.dup().detach(), echo.name)
    sent = [secrets.token_bytes(size) for size in (0, 1, 1000, BIG, 70_000, BIG)]
    with ThreadPoolExecutor(len(sent)) as threads:
        assert list(threads.map(lambda data: asked(listener.getsockname(), data), sent)) == sent
    passing.close()


def test_who_connects_while_nobody_serves_waits_for_the_next(echo: Echo, listener: socket.socket) -> None:
    first = ConnectionForwarder(listener.fileno(), echo.name)
    assert asked(listener.getsockname(), b"first") == b"first"
    first.close()
    with socket.create_connection(listener.getsockname(), 100.0) as one:
        one.sendall(b"between")
        one.shutdown(socket.SHUT_WR)
        second = ConnectionForwarder(listener.fileno(), echo.name)
        assert one.recv(100) == b"between"
    second.close()


def test_who_goes_away_in_the_middle_costs_the_others_nothing(echo: Echo, listener: socket.socket) -> None:
    passing = ConnectionForwarder(listener.fileno(), echo.name)
    for _ in range(50):
        gone = socket.create_connection(listener.getsockname(), 100.0)
        gone.send(b"x" * 1000)
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset in place of an end
        gone.close()
        assert asked(listener.getsockname(), b"on") == b"on"
    passing.close()


def test_where_nobody_is_behind_it_connections_end(listener: socket.socket) -> None:
    passing = ConnectionForwarder(listener.fileno(), f"fedl2-test-{secrets.token_hex(8)}")
    assert asked_or_cut(listener.getsockname()) == b""
    passing.close()


def asked_or_cut(address: tuple[str, int]) -> bytes:
    with socket.create_connection(address, 100.0) as one:
        try:
            return one.recv(1)
        except ConnectionResetError:
            return b""
