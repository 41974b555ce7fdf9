"""A job's token and certificate: the same whenever they are made, good for a handshake, no use to another job."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from cluster_agent.errors import BadAgentConfig
from cluster_agent.kubernetes.training.credentials import (
    JobKeys,
    ServingPair,
    follow_agent_key,
    name_of_key,
    read_agent_key,
    serving_pair,
    token_of,
)
from foundation.followed_files import POLL_SECONDS

KEY = b"k" * 32
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
PATIENCE_SECONDS = 60.0


def pair(uid: str = "u", hosts: tuple[str, ...] = ("127.0.0.1", "::1", "digits-coordinator.team.svc")) -> ServingPair:
    return serving_pair(KEY, uid, hosts, CREATED)


def test_both_follow_from_the_key_and_the_job() -> None:
    assert pair() == pair()
    assert token_of(KEY, "u") == token_of(KEY, "u")
    assert len({token_of(KEY, "u"), token_of(KEY, "v"), token_of(b"l" * 32, "u")}) == 3
    assert len({pair("u").key, pair("v").key, serving_pair(b"l" * 32, "u", ["a"], CREATED).key}) == 3
    assert pair().key == pair(hosts=("10.0.0.1",)).key
    assert pair().key not in repr(pair())


@contextmanager
def serving(served: ServingPair, host: str) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2))
    credentials = grpc.ssl_server_credentials([(served.key.encode(), served.certificate.encode())])
    port = server.add_secure_port(f"{host}:0", credentials)
    server.start()
    try:
        yield f"{host}:{port}"
    finally:
        server.stop(None).wait(PATIENCE_SECONDS)


def answer_of(address: str, ca: ServingPair) -> grpc.StatusCode:
    """UNIMPLEMENTED, which only a server that is trusted can say; or why there was no handshake."""
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(ca.certificate.encode())) as channel:
        try:
            channel.unary_unary("/none/None")(b"", timeout=PATIENCE_SECONDS)
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()  # type: ignore[attr-defined]
            return code
    raise AssertionError("nobody serves this")


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_handshake_with_the_pair(host: str) -> None:
    if host == "[::1]" and not has_ipv6():
        pytest.skip("this machine has no IPv6 loopback")
    with serving(pair(), host) as address:
        assert answer_of(address, pair()) is grpc.StatusCode.UNIMPLEMENTED
        assert answer_of(address, pair("another-job")) is grpc.StatusCode.UNAVAILABLE


def test_a_certificate_for_another_address_is_not_taken() -> None:
    with serving(pair(hosts=("10.0.0.1",)), "127.0.0.1") as address:
        assert answer_of(address, pair(hosts=("10.0.0.1",))) is grpc.StatusCode.UNAVAILABLE


def test_a_key_file_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "key"
    key = read_agent_key(path, make=True)
    assert len(key) >= 32
    assert path.stat().st_mode & 0o077 == 0
    assert read_agent_key(path, make=True) == key
    assert read_agent_key(path, make=False) == key


def test_agents_that_begin_at_once_have_one_key(tmp_path: Path) -> None:
    begin = threading.Barrier(24)

    def agent(path: Path) -> bytes:
        begin.wait(PATIENCE_SECONDS)
        return read_agent_key(path, make=True)

    with ThreadPoolExecutor(24) as agents:
        for number in range(20):
            path = tmp_path / str(number) / "key"
            keys = set(agents.map(agent, [path] * 24, timeout=PATIENCE_SECONDS))
            assert keys == {path.read_bytes()}
            assert [each.name for each in path.parent.iterdir()] == ["key"]


def test_so_have_agents_of_several_processes(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path;"
        "from cluster_agent.kubernetes.training.credentials import read_agent_key;"
        "print('ready', flush=True); sys.stdin.readline(); print(read_agent_key(Path(sys.argv[1]), make=True).decode())"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "key")]
    agents = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) for _ in range(6)
    ]
    for each in agents:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in agents:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    keys = {each.communicate(timeout=PATIENCE_SECONDS)[0].strip() for each in agents}
    assert keys == {(tmp_path / "key").read_text()}


def test_a_key_file_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with pytest.raises(BadAgentConfig, match=r"key_file: .*key cannot be read \(No such file"):
        read_agent_key(path, make=False)
    path.write_bytes(b" short \n")
    with pytest.raises(BadAgentConfig, match="holds 5 bytes; put 32 random ones or more"):
        read_agent_key(path, make=True)
    path.write_bytes(b"x" * 5000)
    with pytest.raises(BadAgentConfig, match="holds 5000 bytes"):
        read_agent_key(path, make=True)
    with pytest.raises(BadAgentConfig, match="cannot be read"):
        read_agent_key(tmp_path, make=True)


def test_a_key_that_is_changed_while_the_agent_runs_is_refused(tmp_path: Path) -> None:
    path, now = tmp_path / "key", 0.0
    refused: list[str] = []
    followed = follow_agent_key(path, make=True, on_refused=refused.append, clock=lambda: now)
    first = path.read_bytes()
    for content in (b"y" * 32, b"", first):
        path.write_bytes(content)
        now += POLL_SECONDS
        assert followed.current() == first
    assert followed.refusal == ""
    (line,) = refused
    assert line.startswith(f"setting backend.training.key_file: {path} was changed")
    assert "earlier_key_files" in line
    path.unlink()
    now += POLL_SECONDS
    assert followed.current() == first
    assert str(path) in refused[-1]


def test_a_jobs_key_is_found_by_its_name() -> None:
    newest, before, oldest = (bytes([letter]) * 32 for letter in b"nbo")
    keys = JobKeys(newest, (before, oldest))
    assert [keys.named(name_of_key(key)) for key in (newest, before, oldest)] == [newest, before, oldest]
    assert keys.named(name_of_key(b"x" * 32)) is None
    assert keys.named("") == oldest, "it began before jobs said with which"
    assert JobKeys(newest).named("") == newest
    assert not any(part in repr(keys) for part in ("nnn", "bbb", "ooo"))
