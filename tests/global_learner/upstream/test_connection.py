"""A region that is sent to another port than that of the learner above: one line in our words, and what to mend."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import grpc
import pytest
from made_certificates import MadeAuthority
from page_server import pages
from reserved_port import ReservedPort

from global_learner.settings import UpstreamSettings
from global_learner.upstream.uplink import address_above
from policy_net.errors import LearnerRefused, LearnerUnreachable
from policy_net.exchange.fleet_client import FleetClient
from policy_net.exchange.secrets_in_use import what_expired

GRPC_WORDS = (
    *("failed to connect", "last error", "ipv4:", "HTTP/2", "Handshake", "Method not found", "refused (", "Deadline"),
    *(code.name for code in grpc.StatusCode),
)


def reported(folder: Path, address: str, error: type[Exception], call_seconds: float = 60.0) -> str:
    """What a region's log says of its registration there; none of it is gRPC's."""
    settings = UpstreamSettings.model_validate({"address": address, "name": "east", "call_seconds": call_seconds})

    client = FleetClient(address_above(settings, folder), lambda *_: None)
    with pytest.raises(error) as caught, closing(client):
        client.register("", ())
    line = str(caught.value)
    assert [word for word in GRPC_WORDS if word in line] == []
    assert "\n" not in line
    return line


def test_nobody_there_is_said_so(tmp_path: Path) -> None:
    with closing(ReservedPort()) as nobody:
        assert reported(tmp_path, nobody.address, LearnerUnreachable) == (
            f"Register: no learner above answers at {nobody.address}: nobody listens there"
        )


def test_a_port_of_pages_is_called_one(tmp_path: Path) -> None:
    with pages() as port:
        line = reported(tmp_path, f"127.0.0.1:{port}", LearnerUnreachable)
    assert f"no learner above answers at 127.0.0.1:{port}: what listens there speaks HTTP" in line
    assert line.endswith("; set upstream.address to the HOST:PORT of a learner's `listen`")


def test_a_port_that_takes_no_clusters_is_called_one(tmp_path: Path) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    line = reported(tmp_path, f"127.0.0.1:{port}", LearnerRefused)
    server.stop(None).wait()
    assert f"what listens at 127.0.0.1:{port} takes no clusters, as a learner's enrollment port" in line
    assert line.endswith("; set upstream.address to the HOST:PORT of a learner's `listen`")


def test_silence_is_said_with_how_long_it_was(tmp_path: Path) -> None:
    with silence() as port:
        line = reported(tmp_path, f"127.0.0.1:{port}", LearnerUnreachable, call_seconds=0.2)
    assert line == f"Register: the learner above at 127.0.0.1:{port} gave no answer within 0.2 s"


def test_a_regions_certificate_is_told_of_and_its_own_clusters_are_served_without(tmp_path: Path) -> None:
    made, now = MadeAuthority(), 1_790_000_000.0
    certificate, key = made.pair("east", now, now + 100.0)
    (tmp_path / "identity.pem").write_bytes(key + certificate + made.certificate(now, now + 1000.0))
    (tmp_path / "identity.pem").chmod(0o600)
    settings = UpstreamSettings(address="127.0.0.1:1", name="east", enrollment_file=tmp_path / "none")
    secrets = FleetClient(address_above(settings, tmp_path), lambda *_: None).secrets
    ends = [secret.validity().ends_unix_seconds for secret in secrets if secret.validity is not None]
    assert ends == [now + 100.0, now + 1000.0]
    assert "certificate upstream has expired" in what_expired(secrets, now + 100.0)
    assert not any(secret.serves for secret in secrets)


@contextmanager
def silence() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])
