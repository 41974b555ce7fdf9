"""A coordinator that is away, and somebody else at its address: he learns nothing, and nobody believes him."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from false_coordinator import FalseCoordinator, Heard
from memory_records import MemoryRecords
from reserved_port import ReservedPort

from elastic_runtime.control.client import ControlClient
from elastic_runtime.control.credentials import ClientCredentials, ServerCredentials
from elastic_runtime.control.member_link import MemberLink
from elastic_runtime.control.messages import Size
from elastic_runtime.coordinator.checkpoint_store import CheckpointStore
from elastic_runtime.coordinator.rules.machine import CoordinatorMachine, begin
from elastic_runtime.coordinator.rules.settings import CoordinatorSettings
from elastic_runtime.coordinator.runner import CoordinatorRunner
from elastic_runtime.coordinator.service import start_server
from elastic_runtime.errors import BadInput, CoordinatorUnproven, CoordinatorUnreachable
from elastic_runtime.launcher.coordinator_connection import ViewFollower
from elastic_runtime.model.layout import TensorSpec, build_layout
from elastic_runtime.model.optimizers import SGD
from elastic_runtime.model.training import Training
from elastic_runtime.protocol.plan import TaskRole
from foundation.clocks import AwakeClock

TOKEN = "a-token-for-these-tests"  # noqa: S105 - of no job
JOB = "digits"
CREDENTIALS = ClientCredentials(TOKEN)
LAYOUT = build_layout([TensorSpec("weight", (16, 16), "float32")], []).to_json()
TERMS = Training(optimizer=SGD(lr=0.1), samples=800, global_batch=8, epochs=3).to_json()


class Coordinator:
    """One that comes and goes at an address of its own; each time it knows nothing of the job's past."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reserved = ReservedPort()
        self.address = self._reserved.address
        self._runner: CoordinatorRunner | None = None
        self._server: grpc.Server | None = None
        self.comes()

    def comes(self) -> None:
        settings = CoordinatorSettings(job=JOB, servers=1, workers=1)
        machine = CoordinatorMachine(settings, 0.0, begin(settings), time.time)
        self._runner = CoordinatorRunner(machine, MemoryRecords(), CheckpointStore(self._folder, 3), AwakeClock(60.0))
        self._server, _ = start_server(self._runner, JOB, self.address, ServerCredentials(TOKEN), 0.05)

    def goes(self) -> None:
        if self._server is not None and self._runner is not None:
            self._server.stop(None).wait()
            self._runner.close()
        self._server = self._runner = None

    def close(self) -> None:
        self.goes()
        self._reserved.close()


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    coordinator = Coordinator(tmp_path)
    yield coordinator
    coordinator.close()


def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 100.0
    while not holds():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.01)


def learned_nothing(heard: list[Heard], address: str) -> None:
    """The token is in nothing that came, and nothing that came does anything at the true coordinator."""
    assert heard
    for one in heard:
        assert TOKEN not in one.headers
        assert TOKEN.encode() not in one.data
    with grpc.insecure_channel(address) as channel:
        for one in heard:
            if one.method.endswith("/Open"):
                continue
            call = channel.unary_unary(one.method)
            if one.method.endswith("/Follow"):
                call = lambda data, timeout, m=one.method: next(channel.unary_stream(m)(data, timeout=timeout))  # noqa: E731
            with pytest.raises(grpc.RpcError) as refused:
                call(one.data, timeout=100.0)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


LIES = [
    (None, False, False),
    (grpc.StatusCode.UNAUTHENTICATED, False, False),
    (grpc.StatusCode.UNAUTHENTICATED, False, True),
    (grpc.StatusCode.UNAUTHENTICATED, True, True),
    (grpc.StatusCode.FAILED_PRECONDITION, True, False),
    (grpc.StatusCode.NOT_FOUND, False, True),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, False, False),
    (grpc.StatusCode.UNIMPLEMENTED, False, True),
    (grpc.StatusCode.PERMISSION_DENIED, True, True),
]


@pytest.mark.parametrize(("code", "opens", "forgets"), LIES)
def test_a_job_waits_for_its_coordinator_while_somebody_else_answers_in_its_place(
    coordinator: Coordinator, code: grpc.StatusCode | None, opens: bool, forgets: bool
) -> None:
    views: list[object] = []
    link = MemberLink(coordinator.address, JOB, "worker-0", TaskRole.WORKER, 7, CREDENTIALS)
    follower = ViewFollower(coordinator.address, JOB, CREDENTIALS, lambda: None)
    tool = ControlClient(coordinator.address, JOB, CREDENTIALS, 5.0)
    try:
        tool.status()
        link.register("{}", LAYOUT, TERMS)
        link.follow(views.append)
        link.report(step=1)
        until(lambda: views and follower.view is not None, "the first view")
        coordinator.goes()
        false = FalseCoordinator(coordinator.address, code, opens, forgets)
        for method in ("/Report", "/Follow") if not forgets else ("/Open",):
            false.wait_for(method, 3)
        with pytest.raises(CoordinatorUnreachable):
            tool.resize("grow", Size(2, 2))
        with pytest.raises(CoordinatorUnreachable):
            tool.resize("grow", Size(2, 2))
        assert link.failure is None
        assert not link.expelled.is_set()
        assert follower.failure is None
        heard = list(false.heard)
        false.close()
        coordinator.comes()
        link.report(step=2)
        link.flush(100.0)
        learned_nothing(heard, coordinator.address)
        assert not tool.status().requests, "the resize that somebody else was asked for"
    finally:
        link.close()
        follower.close()
        tool.close()


@pytest.mark.parametrize(("code", "opens"), [(c, o) for c, o, _ in LIES if c is not grpc.StatusCode.NOT_FOUND])
def test_who_comes_new_meets_him_and_says_so(coordinator: Coordinator, code: grpc.StatusCode, opens: bool) -> None:
    coordinator.goes()
    false = FalseCoordinator(coordinator.address, code, opens)
    link = MemberLink(coordinator.address, JOB, "worker-0", TaskRole.WORKER, 7, CREDENTIALS)
    reported = threading.Event()
    follower = ViewFollower(coordinator.address, JOB, CREDENTIALS, reported.set)
    try:
        with pytest.raises((BadInput, CoordinatorUnreachable)):
            link.register("{}", LAYOUT, TERMS, deadline_seconds=0.5)
        with ControlClient(coordinator.address, JOB, CREDENTIALS, 5.0) as tool, pytest.raises(CoordinatorUnreachable):
            tool.status()
        if opens or code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED):
            assert reported.wait(100.0)
            assert isinstance(follower.failure, CoordinatorUnproven)
    finally:
        link.close()
        follower.close()
        false.close()
    assert all(one.method.endswith("/Open") for one in false.heard), "before he has proved himself he is told nothing"
    coordinator.comes()
    learned_nothing(false.heard, coordinator.address)


def test_the_bytes_of_a_connection_sent_once_more_do_nothing(coordinator: Coordinator) -> None:
    """Whoever listens on the wire has all of it, from the connection's first byte on."""
    kept: list[bytes] = []
    wire = Tap(coordinator.address, kept)
    with ControlClient(wire.address, JOB, CREDENTIALS, 100.0) as tool:
        tool.resize("grow", Size(2, 2))
        tool.suspend("suspend")
        tool.task_ended("worker-0", 1, "gone")
    wire.close()
    sent = b"".join(kept)
    assert TOKEN.encode() not in sent
    assert b"grow" in sent, "nothing is encrypted here"
    for comes_anew in (False, True):
        if comes_anew:
            coordinator.goes()
            coordinator.comes()
        with ControlClient(coordinator.address, JOB, CREDENTIALS, 100.0) as tool:
            before = tool.status()
            assert len(before.requests) == (0 if comes_anew else 2)
            replay(coordinator.address, sent)
            after = tool.status()
        assert (after.requests, after.wanted, after.phase) == (before.requests, before.wanted, before.phase)


class Tap:
    """Connections to a port of its own, passed on to an address; what callers send is kept."""

    def __init__(self, target: str, kept: list[bytes]) -> None:
        host, _, port = target.rpartition(":")
        self._target, self._kept = (host, int(port)), kept
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection(self._target)
        back = threading.Thread(target=self._pass_on, args=(far, near, []), daemon=True)
        back.start()
        self._pass_on(near, far, self._kept)
        back.join(100.0)

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket, kept: list[bytes]) -> None:
        try:
            while data := source.recv(65536):
                kept.append(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        self._thread.join(100.0)
        self._listener.close()


def replay(address: str, sent: bytes) -> None:
    """Send it all on a connection of our own; return when the other side has answered each call."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 100.0) as again:
        again.sendall(sent)
        again.shutdown(socket.SHUT_WR)
        for _ in itertools.takewhile(bool, iter(lambda: again.recv(65536), b"")):
            pass
