"""Connections that are too many: those that never called go first, of whoever has most of them."""

from __future__ import annotations

import contextlib
import socket
import sys

import pytest

from global_learner.service.connection_guard import ConnectionGuard

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process does not see its own sockets")
SECONDS = 60.0


class Port:
    """A listening socket, and connections to it of which both ends are here."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        self.number = self._listening.getsockname()[1]

    def connect(self, source: str) -> socket.socket:
        near = self._stack.enter_context(socket.create_connection(("127.0.0.1", self.number), SECONDS, (source, 0)))
        self._stack.enter_context(self._listening.accept()[0])
        return near


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True


def test_the_silent_connections_of_whoever_has_most_are_closed_and_callers_are_left_alone() -> None:
    with contextlib.ExitStack() as stack:
        port, guard = Port(stack), ConnectionGuard(most=20)
        greedy = [port.connect("127.0.0.2") for _ in range(12)]
        callers = [port.connect("127.0.0.2") for _ in range(2)]
        few = [port.connect("127.0.0.3")]
        for caller in callers:
            guard.on_call(f"ipv4:127.0.0.2:{caller.getsockname()[1]}")
        assert guard.poll(port.number) == 5
        assert [is_open(one) for one in greedy].count(False) == 5
        assert all(map(is_open, (*callers, *few)))


def test_where_there_is_room_nothing_is_closed() -> None:
    with contextlib.ExitStack() as stack:
        port, guard = Port(stack), ConnectionGuard(most=20)
        connections = [port.connect("127.0.0.2") for _ in range(14)]
        assert guard.poll(port.number) == 0
        assert all(map(is_open, connections))


def test_connections_of_another_port_are_none_of_its_business() -> None:
    with contextlib.ExitStack() as stack:
        port, other, guard = Port(stack), Port(stack), ConnectionGuard(most=4)
        connections = [other.connect("127.0.0.2") for _ in range(10)]
        assert guard.poll(port.number) == 0
        assert all(map(is_open, connections))


def test_what_once_was_another_ports_is_looked_at_again_when_it_is_another_file() -> None:
    with contextlib.ExitStack() as stack:
        port, guard = Port(stack), ConnectionGuard(most=4)
        with contextlib.ExitStack() as others:
            other = Port(others)
            for _ in range(6):
                other.connect("127.0.0.2")
            assert guard.poll(port.number) == 0
            assert guard.poll(port.number) == 0
        # These have the numbers that the others' files had.
        greedy = [port.connect("127.0.0.2") for _ in range(6)]
        assert guard.poll(port.number) == 4
        assert [is_open(one) for one in greedy].count(False) == 4


def test_callers_are_known_over_ipv6_too() -> None:
    with contextlib.ExitStack() as stack:
        try:
            listening = stack.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6))
        except OSError:
            pytest.skip("no IPv6 here")
        guard, number = ConnectionGuard(most=1), listening.getsockname()[1]
        near = stack.enter_context(socket.create_connection(("::1", number), SECONDS))
        stack.enter_context(listening.accept()[0])
        guard.on_call(f"ipv6:%5B::1%5D:{near.getsockname()[1]}")
        assert guard.poll(number) == 0
        assert is_open(near)
