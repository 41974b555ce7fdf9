from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from elastic_runtime.transport import CurveKeys, Endpoint, Event, Message, TransportSettings

DEADLINE_SECONDS = 60.0
TOKEN = "of the job"  # noqa: S105 -- guards nothing

WAYS = ("tcp", "tcp+curve", "ipc-frames", "shared", "shared+curve")


class Wire:
    """Makes endpoints that talk in one way, connects them, and turns them until something is so."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.endpoints: list[Endpoint] = []
        self.keys: dict[str, CurveKeys] = {}
        self.events: dict[Endpoint, list[Event]] = {}

    @property
    def shared(self) -> bool:
        return self.way.startswith("shared")

    def endpoint(self, name: str, *, settings: dict[str, Any] | None = None, **options: Any) -> Endpoint:
        # A machine that is busy for some seconds makes nobody silent, unless a test is about that.
        patient = {"heartbeat_timeout_seconds": DEADLINE_SECONDS, "handshake_seconds": DEADLINE_SECONDS}
        quick = {"reconnect_first_seconds": 0.01, "reconnect_most_seconds": 0.1}
        chosen = {**patient, **quick, **(settings or {})}
        keys = self.keys.setdefault(name, CurveKeys.generate()) if self.way.endswith("curve") else None
        options = {"job_token": TOKEN, "curve": keys, "bind": "tcp://127.0.0.1:0", **options}
        made = Endpoint(
            name,
            shared_memory=self.shared,
            settings=TransportSettings(local_sockets=not self.way.startswith("tcp"), **chosen),
            **options,
        )
        for peer, keys in self.keys.items():
            made.allow(peer, keys.public)
        for other in self.endpoints:
            other.allow(name, made._local.curve.public if made._local.curve else None)
        self.endpoints.append(made)
        self.events[made] = []
        return made

    def connect(self, *ways: tuple[Endpoint, Endpoint]) -> None:
        for sender, receiver in ways:
            sender.connect(receiver.name, receiver.address)
        self.until(
            lambda: all(
                sender.is_up(receiver.name)
                and sender.name in receiver.inbound.peers()
                and sender.shares_memory(receiver.name) == self.shared
                for sender, receiver in ways
            )
        )
        for events in self.events.values():
            events.clear()

    def pair(self, **options: Any) -> tuple[Endpoint, Endpoint]:
        worker, server = self.endpoint("worker-0", **options), self.endpoint("ps-0", **options)
        self.connect((worker, server))
        return worker, server

    def turn(self, seconds: float = 0.002) -> None:
        for endpoint in self.endpoints:
            event = endpoint.receive(seconds)
            if event is not None:
                self.events[endpoint].append(event)

    @staticmethod
    def unacknowledged(endpoint: Endpoint, peer: str) -> range:
        """Numbers of the messages on this connection that the peer's application did not receive yet."""
        endpoint.links[peer].pump()
        return endpoint.links[peer].unacknowledged

    @staticmethod
    def losses(endpoint: Endpoint, peer: str) -> tuple[int, int]:
        """Messages lost so far: (of ours, unacknowledged when a connection ended; of the peer's, never received)."""
        counters = endpoint.counters.peer(peer)
        return counters.out.lost_messages, counters.into.lost_messages

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "it did not become so in time"
            self.turn()

    def message(self, endpoint: Endpoint) -> Message:
        """The next message that `endpoint` receives; news before it are kept in `events`.

        The others look after their connections, as they do while they wait, and receive nothing.
        """
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            for other in self.endpoints:
                for link in other.links.values():
                    link.pump()
            for event in [*self.events[endpoint]]:
                if isinstance(event, Message):
                    self.events[endpoint].remove(event)
                    return event
            event = endpoint.receive(0.02)
            if event is not None:
                self.events[endpoint].append(event)
        raise AssertionError("no message came")

    def close(self) -> None:
        for endpoint in self.endpoints:
            endpoint.close()


@pytest.fixture(params=WAYS)
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    made = Wire(request.param)
    yield made
    made.close()


@pytest.fixture(params=["tcp"])
def tcp(request: pytest.FixtureRequest) -> Iterator[Wire]:
    made = Wire(request.param)
    yield made
    made.close()


@pytest.fixture
def shared_wire() -> Iterator[Wire]:
    made = Wire("shared")
    yield made
    made.close()


@pytest.fixture
def numbers() -> Iterator[int]:
    return itertools.count()
