"""Tokens, TLS, and where neither is needed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from certificates import certificate
from memory_records import MemoryRecords

from elastic_runtime.control.client import ControlClient
from elastic_runtime.control.credentials import (
    ClientCredentials,
    ServerCredentials,
    follow_ca,
    follow_pair,
    is_loopback,
    open_channel,
    read_pem,
    read_token,
)
from elastic_runtime.control.member_link import MemberLink
from elastic_runtime.coordinator.checkpoint_store import CheckpointStore
from elastic_runtime.coordinator.rules.machine import CoordinatorMachine, begin
from elastic_runtime.coordinator.rules.settings import CoordinatorSettings
from elastic_runtime.coordinator.runner import CoordinatorRunner
from elastic_runtime.coordinator.service import start_server
from elastic_runtime.errors import BadInput, CoordinatorMistrusted, CoordinatorUnreachable
from elastic_runtime.protocol.plan import JobPhase, TaskRole
from foundation.clocks import AwakeClock
from foundation.followed_files import POLL_SECONDS, FollowedFiles

TOKEN = "a-token-for-these-tests"  # noqa: S105 - of no job


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[CoordinatorRunner]:
    settings = CoordinatorSettings(job="secret", servers=1, workers=1)
    machine = CoordinatorMachine(settings, 0.0, begin(settings), time.time)
    runner = CoordinatorRunner(machine, MemoryRecords(), CheckpointStore(tmp_path, 3), AwakeClock(60.0))
    yield runner
    runner.close()


def test_over_tls_the_coordinator_has_to_have_a_certificate_that_the_caller_trusts(runner: CoordinatorRunner) -> None:
    certificate_pem, key_pem = certificate()
    other_pem, _ = certificate()
    server, port = start_server(runner, "secret", "127.0.0.1:0", serving((certificate_pem, key_pem)), 1.0)
    address = f"127.0.0.1:{port}"
    with ControlClient(address, "secret", ClientCredentials(TOKEN, certificate_pem)) as client:
        assert client.status().phase is JobPhase.STARTING
    plain = ControlClient(address, "secret", ClientCredentials(TOKEN), 1.0)
    with plain, pytest.raises(CoordinatorUnreachable):
        plain.status()
    not_trusted(address, other_pem, "its certificate is not signed by the CA file's")
    server.stop(None).wait()


def serving(pair: tuple[bytes, bytes] | None) -> ServerCredentials:
    """Of a coordinator with this certificate and key."""
    return ServerCredentials(TOKEN, pair=None if pair is None else FollowedFiles(lambda _: pair, BadInput))


def not_trusted(address: str, ca_pem: bytes, says: str) -> None:
    """A tool says so; a member that begins ends at once, as trying again mends nothing."""
    client = ControlClient(address, "secret", ClientCredentials(TOKEN, ca_pem), 5.0)
    with client, pytest.raises(CoordinatorMistrusted, match=f"the coordinator at {address} is not trusted: {says}"):
        client.status()
    link = MemberLink(address, "secret", "worker-0", TaskRole.WORKER, 7, ClientCredentials(TOKEN, ca_pem))
    with pytest.raises(BadInput, match=says):
        link.register("{}")
    link.close()


def test_a_coordinator_of_another_host_or_without_tls_is_not_trusted(runner: CoordinatorRunner) -> None:
    other_pem, other_key = certificate("127.0.0.9")
    old_pem, old_key = certificate(days=-1)
    for pair, ca_pem, says in (
        ((other_pem, other_key), other_pem, "its certificate is of another host"),
        ((old_pem, old_key), old_pem, "its certificate has expired"),
        (None, other_pem, "it speaks no TLS"),
    ):
        server, port = start_server(runner, "secret", "127.0.0.1:0", serving(pair), 1.0)
        not_trusted(f"127.0.0.1:{port}", ca_pem, says)
        server.stop(None).wait()


def test_beyond_this_machine_tls_is_asked_for_unless_allowed_by_name(runner: CoordinatorRunner) -> None:
    with pytest.raises(BadInput, match="not on this machine"):
        open_channel("192.0.2.1:50", ClientCredentials(TOKEN))
    open_channel("192.0.2.1:50", ClientCredentials(TOKEN, insecure_allowed=True)).close()
    with pytest.raises(BadInput, match="not loopback"):
        start_server(runner, "secret", "0.0.0.0:0", ServerCredentials(TOKEN), 1.0)


def test_a_taken_port_is_said(runner: CoordinatorRunner) -> None:
    server, port = start_server(runner, "secret", "127.0.0.1:0", ServerCredentials(TOKEN), 1.0)
    with pytest.raises(BadInput, match=f"cannot serve on 127.0.0.1:{port}"):
        start_server(runner, "secret", f"127.0.0.1:{port}", ServerCredentials(TOKEN), 1.0)
    server.stop(None).wait()


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1:5", True), ("[::1]:5", True), ("localhost:5", True), ("10.0.0.1:5", False), ("host.example:5", False)],
)
def test_loopback_is_known_by_its_addresses(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


def test_tokens_are_one_line_and_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    assert read_token(path) == TOKEN
    assert TOKEN not in repr(ClientCredentials(TOKEN)) + repr(ServerCredentials(TOKEN))
    for content in ("short", "two words that are long enough", "", "line one of two\nline two of two"):
        path.write_text(content)
        with pytest.raises(BadInput, match="holds no token"):
            read_token(path)
    with pytest.raises(BadInput, match="cannot be read"):
        read_token(tmp_path / "missing")
    with pytest.raises(BadInput, match="not in PEM format"):
        read_pem(path, "certificate")


class Replaced:
    """A coordinator's certificate, its key and the CA file of those who ask it, which signs itself; a clock by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 0.0
        self.write("cert.pem", "key.pem", "ca.pem")

    def write(self, *names: str) -> None:
        """Another certificate; of its files only these."""
        certificate_pem, key_pem = certificate()
        for name in names:
            (self.folder / name).write_bytes(key_pem if name == "key.pem" else certificate_pem)

    def server(self) -> ServerCredentials:
        pair = follow_pair(self.folder / "cert.pem", self.folder / "key.pem", lambda: self.now)
        return ServerCredentials(TOKEN, pair=pair)

    def client(self) -> ClientCredentials:
        return ClientCredentials(TOKEN, ca=follow_ca(self.folder / "ca.pem", lambda: self.now))


def test_a_coordinators_certificate_is_replaced_while_it_serves(runner: CoordinatorRunner, tmp_path: Path) -> None:
    files = Replaced(tmp_path)
    server, port = start_server(runner, "secret", "127.0.0.1:0", files.server(), 1.0)
    address = f"127.0.0.1:{port}"
    credentials = files.client()
    with ControlClient(address, "secret", credentials, 60.0) as client:
        assert client.status().phase is JobPhase.STARTING
        files.write("cert.pem")  # without its key
        (tmp_path / "ca.pem").write_bytes(b"")
        with structlog.testing.capture_logs() as lines:
            for _ in range(2):
                files.now += POLL_SECONDS
                assert client.status().phase is JobPhase.STARTING, "those before serve on"
                with ControlClient(address, "secret", credentials, 60.0) as another:
                    assert another.status().phase is JobPhase.STARTING
        assert {line["event"] for line in lines} == {"certificate-not-replaced"}
        assert len(lines) == 2
        files.write("cert.pem", "key.pem", "ca.pem")
        files.now += POLL_SECONDS
        assert client.status().phase is JobPhase.STARTING, "on a connection of its own, with a session of its own"
        with ControlClient(
            address, "secret", ClientCredentials(TOKEN, (tmp_path / "ca.pem").read_bytes()), 60.0
        ) as new:
            assert new.status().phase is JobPhase.STARTING
    server.stop(None).wait()


def test_a_pair_and_a_ca_file_that_cannot_be_used_at_the_start_are_said(tmp_path: Path) -> None:
    files = Replaced(tmp_path)
    files.write("key.pem")
    with pytest.raises(BadInput, match="are no certificate and its key"):
        files.server()
    (tmp_path / "ca.pem").write_bytes(b"")
    with pytest.raises(BadInput, match="is not in PEM format"):
        files.client()
