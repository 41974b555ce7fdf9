"""An agent's certificates that were made elsewhere are replaced while it runs: its next call shows the new one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import structlog
from agent_fakes import Clock
from made_certificates import DAY_SECONDS, MadeAuthority, MountedSecret

from cluster_agent.fleet.learner_client import address_of
from cluster_agent.settings import ClientTlsSettings, LearnerConnectionSettings
from cluster_agent.telemetry import AgentTelemetry, Health
from foundation.followed_files import POLL_SECONDS
from policy_net.exchange.generated import fleet_pb2, fleet_pb2_grpc
from policy_net.exchange.learner_connection import LearnerConnection
from policy_net.exchange.secrets_in_use import what_expired

CALL_SECONDS = 60.0


class Shown(fleet_pb2_grpc.FleetServicer):
    """A learner that notes the certificate of each caller."""

    def __init__(self) -> None:
        self.certificates: list[bytes] = []

    def Register(self, request, context):  # noqa: N802
        self.certificates.append(context.auth_context()["x509_pem_cert"][0])
        return fleet_pb2.RegisterReply()


class World:
    """An agent's connection, its files, and a learner."""

    def __init__(self, folder: Path) -> None:
        self.secret, self.authority = MountedSecret(folder / "mounted"), MadeAuthority()
        self.begins = time.time() - DAY_SECONDS
        self.clock, self.looks = Clock(), Clock()
        self.clock.now = time.time()
        self.learner = Shown()
        self.server = grpc.server(ThreadPoolExecutor(2))
        fleet_pb2_grpc.add_FleetServicer_to_server(self.learner, self.server)
        certificate, key = self.authority.pair("learner", self.begins, self.begins + 9 * DAY_SECONDS)
        own = self.authority.certificate(self.begins, self.begins + 9 * DAY_SECONDS)
        credentials = grpc.ssl_server_credentials([(key, certificate)], own, require_client_auth=True)
        port = self.server.add_secure_port("127.0.0.1:0", credentials)
        self.server.start()
        self.first = self.put(2)
        tls = ClientTlsSettings(
            ca_file=self.secret.folder / "ca.crt",
            certificate_file=self.secret.folder / "tls.crt",
            key_file=self.secret.folder / "tls.key",
        )
        self.telemetry = AgentTelemetry()
        self.connection = LearnerConnection(
            address_of(LearnerConnectionSettings(address=f"127.0.0.1:{port}", tls=tls), "north", folder / "identity"),
            lambda name, method, request: method(request),
            self.clock,
            on_replaced=self.telemetry.secrets.on_replaced,
            poll_clock=self.looks,
        )
        self.telemetry.secrets.add(*self.connection.secrets)

    def put(self, days: float) -> bytes:
        certificate, key = self.authority.pair("north", self.begins, self.begins + days * DAY_SECONDS)
        own = self.authority.certificate(self.begins, self.begins + 9 * DAY_SECONDS)
        self.secret.put(tls_crt=certificate, tls_key=key, ca_crt=own)
        return certificate

    def shown(self) -> bytes:
        """The certificate that the next call shows, some time after the last one."""
        self.looks.now += POLL_SECONDS
        self.connection.fleet().Register(fleet_pb2.RegisterRequest(cluster="north"), timeout=CALL_SECONDS)
        return self.learner.certificates[-1]

    def counted(self, name: str, labels: dict[str, str]) -> float | None:
        return self.telemetry.registry.get_sample_value(f"fedl2_agent_{name}", labels)

    def close(self) -> None:
        self.connection.close()
        self.server.stop(0).wait()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def test_the_call_after_a_replacement_shows_the_new_certificate(world: World) -> None:
    assert world.shown().strip() == world.first.strip()
    second = world.put(5)
    with structlog.testing.capture_logs() as lines:
        assert world.shown().strip() == second.strip()
        assert world.shown().strip() == second.strip()
    assert [line["event"] for line in lines] == ["identity-replaced"]
    assert world.counted("secret_replacements_total", {"secret": "learner"}) == 1.0
    expiry = world.counted("certificate_expiry_seconds", {"certificate": "learner"})
    assert expiry == pytest.approx(world.begins + 5 * DAY_SECONDS, abs=1.0)
    authority = world.counted("certificate_expiry_seconds", {"certificate": "learner-authority"})
    assert authority == pytest.approx(world.begins + 9 * DAY_SECONDS, abs=1.0)
    assert world.counted("certificate_life_seconds", {"certificate": "learner"}) == pytest.approx(
        5 * DAY_SECONDS, abs=2.0
    )


@pytest.mark.parametrize("name", ["tls.crt", "tls.key", "ca.crt"])
def test_with_a_file_that_cannot_be_used_the_certificate_before_is_shown(world: World, name: str) -> None:
    (world.secret.folder / name).write_bytes(b"")
    with structlog.testing.capture_logs() as lines:
        assert [world.shown().strip() for _ in range(3)] == [world.first.strip()] * 3
    assert [line["event"] for line in lines] == ["identity-not-replaced"]
    assert name in lines[0]["error"]
    assert world.counted("secret_refused_flag", {"secret": "learner"}) == 1.0
    second = world.put(5)
    assert world.shown().strip() == second.strip()
    assert world.counted("secret_refused_flag", {"secret": "learner"}) == 0.0


def test_a_key_without_its_certificate_waits_for_it(world: World) -> None:
    certificate, key = world.authority.pair("north", world.begins, world.begins + 5 * DAY_SECONDS)
    (world.secret.folder / "tls.key").write_bytes(key)
    assert world.shown().strip() == world.first.strip()
    assert "is not the key of" in world.connection.secrets[0].refusal()
    (world.secret.folder / "tls.crt").write_bytes(certificate)
    assert world.shown().strip() == certificate.strip()


def test_readiness_and_the_advice_say_that_a_certificate_has_expired(world: World) -> None:
    health = Health(60.0, Clock(), lambda: what_expired(world.telemetry.secrets, world.clock.now))
    assert (health.not_ready, world.connection.advice) == ("", "")
    world.clock.now += 2 * DAY_SECONDS
    assert health.not_ready.startswith("certificate learner has expired")
    assert "replace the files of learner.tls" in world.connection.advice
    world.put(5)
    world.shown()
    assert (health.not_ready, world.connection.advice) == ("", "")
