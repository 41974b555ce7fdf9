"""Certificates that were made elsewhere are replaced while the learner serves: the next handshake shows them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.request import urlopen

import grpc
import pytest
import structlog
from identity_makers import Clock
from learner_makers import settings
from made_certificates import DAY_SECONDS, MadeAuthority, MountedSecret

from foundation.followed_files import POLL_SECONDS
from global_learner.enrollment.authority import follow_authority
from global_learner.errors import BadLearnerConfig
from global_learner.service.admission import AdmissionLimits, bounded_server, calling_host
from global_learner.service.http_server import http_pages
from global_learner.service.identity_setup import (
    ExternalCredentials,
    OwnCertificate,
    follow_secrets,
    read_external_credentials,
)
from global_learner.service.lanes import OPERATOR_SHARE, one_lane
from global_learner.service.listener import bind, server_credentials
from global_learner.telemetry import LearnerTelemetry
from policy_net.exchange.secrets_in_use import what_expired

HOUR_SECONDS = 3600.0


class Files:
    """The learner's files, an authority, and both clocks; gRPC looks at certificates by the machine's time."""

    def __init__(self, folder: Path) -> None:
        self.secret = MountedSecret(folder / "mounted")
        self.authority = MadeAuthority()
        self.begins = time.time() - DAY_SECONDS
        self.clock, self.polls = Clock(), Clock()
        self.clock.now = time.time()
        self.telemetry = LearnerTelemetry()
        self.put(2)
        names = {"certificate_file": "tls.crt", "key_file": "tls.key", "client_ca_file": "ca.crt"}
        tls = {name: str(self.secret.folder / file) for name, file in names.items()}
        self.settings = settings(folder, tls=tls)
        self.external = self.read()
        self.telemetry.secrets.add(*self.external.secrets)

    def read(self) -> ExternalCredentials:
        return read_external_credentials(self.settings, self.clock, self.telemetry.secrets.on_replaced, self.polls)

    def put(self, days: float, authority: MadeAuthority | None = None) -> bytes:
        signer = authority or self.authority
        ends = self.begins + days * DAY_SECONDS
        certificate, key = signer.pair("learner", self.begins, ends)
        own = signer.certificate(self.begins, self.begins + 9 * DAY_SECONDS)
        self.secret.put(tls_crt=certificate, tls_key=key, ca_crt=own)
        return certificate

    def damage(self, name: str, content: bytes) -> None:
        """Change one file in place."""
        (self.secret.folder / name).write_bytes(content)

    def after_a_while(self) -> None:
        self.polls.now += POLL_SECONDS
        self.telemetry.secrets.poll()

    def counted(self, name: str, labels: dict[str, str]) -> float | None:
        return self.telemetry.registry.get_sample_value(f"fedl2_learner_{name}", labels)

    @property
    def refused(self) -> tuple[float | None, float | None]:
        return self.counted("secret_refused_flag", {"secret": "service"}), self.counted(
            "secret_replacements_total", {"secret": "service"}
        )


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@contextlib.asynccontextmanager
async def served(credentials: grpc.ServerCredentials) -> AsyncIterator[int]:
    server = bounded_server(AdmissionLimits(1 << 20, 64), calling_host, one_lane(OPERATOR_SHARE), LearnerTelemetry())
    port = bind("listen", server, "127.0.0.1:0", credentials)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


def shown_at(port: int) -> bytes:
    """The certificate (PEM) that a server shows in a handshake."""
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=60).encode()


def same(one: bytes, other: bytes) -> bool:
    return ssl.PEM_cert_to_DER_cert(one.decode()) == ssl.PEM_cert_to_DER_cert(other.decode())


async def test_a_replaced_certificate_is_shown_in_the_next_handshake(files: Files) -> None:
    assert files.external.files is not None
    async with served(server_credentials(files.external.files.current, only_certified=False)) as port:
        first = await asyncio.to_thread(shown_at, port)
        second = files.put(5)
        assert same(await asyncio.to_thread(shown_at, port), first), "not yet looked at again"
        files.polls.now += POLL_SECONDS
        assert same(await asyncio.to_thread(shown_at, port), second)
    assert files.counted("certificate_expiry_seconds", {"certificate": "service"}) == pytest.approx(
        files.begins + 5 * DAY_SECONDS, abs=1.0
    )
    assert files.refused == (0.0, 1.0)


async def test_callers_of_a_replaced_authority_get_in_and_those_of_the_one_before_no_longer(files: Files) -> None:
    assert files.external.files is not None
    other = MadeAuthority("other-ca")

    def channel(signer: MadeAuthority, trusted: MadeAuthority) -> grpc.aio.Channel:
        certificate, key = signer.pair("north", files.begins, files.begins + 5 * DAY_SECONDS)
        ca = trusted.certificate(files.begins, files.begins + 5 * DAY_SECONDS)
        return grpc.aio.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(ca, key, certificate))

    async def status(signer: MadeAuthority, trusted: MadeAuthority) -> grpc.StatusCode:
        async with channel(signer, trusted) as wire:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await wire.unary_unary("/no.Service/Call")(b"", timeout=60)
            return caught.value.code()

    async with served(server_credentials(files.external.files.current, only_certified=True)) as port:
        assert await status(files.authority, files.authority) is grpc.StatusCode.UNIMPLEMENTED
        assert await status(other, files.authority) is grpc.StatusCode.UNAVAILABLE
        files.put(5, other)
        files.polls.now += POLL_SECONDS
        assert await status(other, other) is grpc.StatusCode.UNIMPLEMENTED
        assert await status(files.authority, other) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("damage", ["torn", "empty certificate", "empty key", "empty authority", "expired", "early"])
def test_of_files_that_cannot_be_used_those_before_serve_on_and_a_line_and_a_metric_say_so(
    files: Files, damage: str
) -> None:
    assert files.external.files is not None
    before = files.external.files.value
    if damage == "torn":
        files.damage("tls.crt", files.authority.pair("learner", files.begins, files.clock.now + DAY_SECONDS)[0])
    elif damage.startswith("empty"):
        files.damage({"certificate": "tls.crt", "key": "tls.key", "authority": "ca.crt"}[damage.split()[1]], b"")
    elif damage == "expired":
        files.put(0.5)
    else:
        now = files.clock.now
        certificate, key = files.authority.pair("learner", now + HOUR_SECONDS, now + DAY_SECONDS)
        files.secret.put(tls_crt=certificate, tls_key=key, ca_crt=before.authority or b"")
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            files.after_a_while()
    assert files.external.files.value is before
    assert files.refused == (1.0, 0.0)
    assert [line["event"] for line in lines] == ["certificate-not-replaced"]
    files.put(5)
    files.after_a_while()
    assert files.external.files.value is not before
    assert files.refused == (0.0, 1.0)


def test_what_holds_only_later_is_taken_when_it_holds(files: Files) -> None:
    assert files.external.files is not None
    now = files.clock.now
    certificate, key = files.authority.pair("learner", now + HOUR_SECONDS, now + DAY_SECONDS)
    files.secret.put(tls_crt=certificate, tls_key=key, ca_crt=files.external.files.value.authority or b"")
    files.after_a_while()
    assert files.external.files.value.certificate != certificate
    files.clock.now += HOUR_SECONDS
    files.after_a_while()
    assert files.external.files.value.certificate == certificate


def test_readiness_says_which_certificate_has_expired_and_why(files: Files) -> None:
    assert what_expired(files.telemetry.secrets, files.clock.now) == ""
    files.clock.now += 2 * DAY_SECONDS
    said = what_expired(files.telemetry.secrets, files.clock.now)
    assert said.startswith("certificate service has expired, on 20")
    assert said.endswith("nothing newer is in its place")
    files.damage("tls.key", b"")
    files.after_a_while()
    said = what_expired(files.telemetry.secrets, files.clock.now)
    assert "what was put in its place is not used" in said
    assert "tls.key: holds no private key" in said
    files.put(5)
    files.after_a_while()
    assert what_expired(files.telemetry.secrets, files.clock.now) == ""
    files.clock.now += 9 * DAY_SECONDS
    assert "certificate service has expired" in what_expired(files.telemetry.secrets, files.clock.now)


async def test_files_are_looked_at_though_nobody_connects(files: Files) -> None:
    turns = 0

    async def sleep(seconds: float) -> None:
        nonlocal turns
        files.polls.now += seconds
        turns += 1
        if turns == 1:
            files.put(5)
        if turns == 3:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await follow_secrets(files.telemetry, sleep)
    assert files.refused == (0.0, 1.0)


@pytest.mark.parametrize(
    ("remark", "said"),
    [("", "ready\n"), ("certificate upstream has expired", "ready; certificate upstream has expired\n")],
)
def test_what_holds_up_nobody_is_said_by_a_learner_that_is_ready(remark: str, said: str) -> None:
    with (
        http_pages("127.0.0.1:0", LearnerTelemetry(), lambda: "", remark=lambda: remark) as port,
        urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60) as reply,
    ):
        assert (reply.status, reply.read().decode()) == (200, said)


class Authorities:
    """An authority in two files, which signs for clusters."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made = folder, MadeAuthority("platform-ca")
        self.clock, self.polls = Clock(), Clock()
        self.write(self.made, 30)
        self.replaced = 0
        self.followed = follow_authority(
            folder / "ca.pem", folder / "ca.key", self.clock, self.count, poll_clock=self.polls
        )

    def count(self) -> None:
        self.replaced += 1

    def write(self, made: MadeAuthority, days: float) -> None:
        now = self.clock.now
        (self.folder / "ca.pem").write_bytes(made.certificate(now - DAY_SECONDS, now + days * DAY_SECONDS))
        (self.folder / "ca.key").write_bytes(made.private_key())
        (self.folder / "ca.key").chmod(0o600)

    def after_a_while(self) -> None:
        self.polls.now += POLL_SECONDS
        self.followed.current()


def test_an_authoritys_renewed_certificate_signs_at_once_and_another_authority_is_refused(tmp_path: Path) -> None:
    here = Authorities(tmp_path)
    authority = here.followed.value
    own = OwnCertificate(authority, ("127.0.0.1",), here.clock)
    first = own.current()
    here.write(here.made, 300)
    here.after_a_while()
    assert authority.validity.ends_unix_seconds == pytest.approx(here.clock.now + 300 * DAY_SECONDS, abs=1.0)
    second = own.current()
    assert second is not first
    assert second.authority == authority.pem == (tmp_path / "ca.pem").read_bytes()
    here.write(MadeAuthority("platform-ca"), 300)
    here.after_a_while()
    assert "is another authority's key" in here.followed.refusal
    assert own.current() is second
    assert here.replaced == 1
    (tmp_path / "ca.key").chmod(0o644)
    here.after_a_while()
    assert "chmod 600" in here.followed.refusal


def test_an_authority_that_cannot_be_used_at_the_start_is_said(tmp_path: Path) -> None:
    Authorities(tmp_path)
    (tmp_path / "ca.pem").write_bytes(b"")
    with pytest.raises(BadLearnerConfig, match="no authority's certificate"):
        follow_authority(tmp_path / "ca.pem", tmp_path / "ca.key", Clock())


def test_the_learners_own_certificate_is_made_anew_before_it_expires(tmp_path: Path) -> None:
    here = Authorities(tmp_path)
    own = OwnCertificate(here.followed.value, ("127.0.0.1",), here.clock)
    first = own.current()
    here.clock.now += 400 * DAY_SECONDS
    assert own.current() is first
    here.clock.now += 100 * DAY_SECONDS
    assert own.current().validity.ends_unix_seconds > first.validity.ends_unix_seconds
