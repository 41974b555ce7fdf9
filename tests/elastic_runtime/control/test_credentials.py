"""Tokens, TLS, and where neither is needed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import certificate
from memory_records import MemoryRecords

from elastic_runtime.control.addresses import is_loopback
from elastic_runtime.control.client import ControlClient
from elastic_runtime.control.credentials import (
    ClientCredentials,
    ServerCredentials,
    open_channel,
    read_pem,
    read_token,
)
from elastic_runtime.control.member_link import MemberLink
from elastic_runtime.coordinator.checkpoint_store import CheckpointStore
from elastic_runtime.coordinator.rules.machine import Machine, begin
from elastic_runtime.coordinator.rules.settings import CoordinatorSettings
from elastic_runtime.coordinator.runner import Runner
from elastic_runtime.coordinator.service import start_server
from elastic_runtime.errors import BadInput, CoordinatorMistrusted, CoordinatorUnreachable
from elastic_runtime.protocol.plan import Phase, Role
from foundation.clocks import AwakeClock

TOKEN = "a-token-for-these-tests"  # noqa: S105 - of no job


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    settings = CoordinatorSettings(job="secret", servers=1, workers=1)
    machine = Machine(settings, 0.0, begin(settings), time.time)
    runner = Runner(machine, MemoryRecords(), CheckpointStore(tmp_path, 3), AwakeClock(60.0))
    yield runner
    runner.close()


def test_over_tls_the_coordinator_has_to_have_a_certificate_that_the_caller_trusts(runner: Runner) -> None:
    certificate_pem, key_pem = certificate()
    other_pem, _ = certificate()
    server, port = start_server(
        runner, "secret", "127.0.0.1:0", ServerCredentials(TOKEN, certificate_pem, key_pem), 1.0
    )
    address = f"127.0.0.1:{port}"
    with ControlClient(address, "secret", ClientCredentials(TOKEN, certificate_pem)) as client:
        assert client.status().phase is Phase.STARTING
    plain = ControlClient(address, "secret", ClientCredentials(TOKEN), 1.0)
    with plain, pytest.raises(CoordinatorUnreachable):
        plain.status()
    not_trusted(address, other_pem, "its certificate is not signed by the CA file's")
    server.stop(None).wait()


def not_trusted(address: str, ca_pem: bytes, says: str) -> None:
    """A tool says so; a member that begins ends at once, as trying again mends nothing."""
    client = ControlClient(address, "secret", ClientCredentials(TOKEN, ca_pem), 5.0)
    with client, pytest.raises(CoordinatorMistrusted, match=f"the coordinator at {address} is not trusted: {says}"):
        client.status()
    link = MemberLink(address, "secret", "worker-0", Role.WORKER, 7, ClientCredentials(TOKEN, ca_pem))
    with pytest.raises(BadInput, match=says):
        link.register("{}")
    link.close()


def test_a_coordinator_of_another_host_or_without_tls_is_not_trusted(runner: Runner) -> None:
    other_pem, other_key = certificate("127.0.0.9")
    old_pem, old_key = certificate(days=-1)
    for pair, ca_pem, says in (
        ((other_pem, other_key), other_pem, "its certificate is of another host"),
        ((old_pem, old_key), old_pem, "its certificate has expired"),
        ((None, None), other_pem, "it speaks no TLS"),
    ):
        server, port = start_server(runner, "secret", "127.0.0.1:0", ServerCredentials(TOKEN, *pair), 1.0)
        not_trusted(f"127.0.0.1:{port}", ca_pem, says)
        server.stop(None).wait()


def test_beyond_this_machine_tls_is_asked_for_unless_allowed_by_name(runner: Runner) -> None:
    with pytest.raises(BadInput, match="not on this machine"):
        open_channel("192.0.2.1:50", ClientCredentials(TOKEN))
    open_channel("192.0.2.1:50", ClientCredentials(TOKEN, insecure_allowed=True)).close()
    with pytest.raises(BadInput, match="not loopback"):
        start_server(runner, "secret", "0.0.0.0:0", ServerCredentials(TOKEN), 1.0)
    with pytest.raises(BadInput, match="both a certificate and its key"):
        start_server(runner, "secret", "127.0.0.1:0", ServerCredentials(TOKEN, b"x"), 1.0)


def test_a_taken_port_is_said(runner: Runner) -> None:
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
    assert TOKEN not in repr(ClientCredentials(TOKEN)) + repr(ServerCredentials(TOKEN, b"", b"key"))
    for content in ("short", "two words that are long enough", "", "line one of two\nline two of two"):
        path.write_text(content)
        with pytest.raises(BadInput, match="holds no token"):
            read_token(path)
    with pytest.raises(BadInput, match="cannot be read"):
        read_token(tmp_path / "missing")
    with pytest.raises(BadInput, match="not in PEM format"):
        read_pem(path, "certificate")
