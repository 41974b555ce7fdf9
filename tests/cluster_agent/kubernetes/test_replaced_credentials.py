"""Credentials for an API server are replaced while an agent runs: its next request is made with the new ones."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from apiserver.serving import KubeServer
from cryptography import x509
from made_certificates import DAY_SECONDS, MadeAuthority, MountedSecret

from cluster_agent.backend_settings import KubernetesBackendSettings
from cluster_agent.backends.base import AgentParts
from cluster_agent.backends.kubernetes.backend import KubernetesBackend, open_backend
from cluster_agent.errors import BadAgentConfig
from cluster_agent.kubernetes import access
from cluster_agent.kubernetes.access import Access, OpenedClient, follow_client, open_client, secrets_of
from cluster_agent.kubernetes.api_server import ApiServer
from cluster_agent.kubernetes.errors import ApiUnanswered, Unauthorized
from cluster_agent.kubernetes.resources import PODS
from cluster_agent.telemetry import AgentTelemetry
from foundation.followed_files import POLL_SECONDS, FollowedFiles
from policy_net.exchange.secrets_in_use import what_expired


class Followed:
    """A client that is followed, with a clock that is set by hand."""

    def __init__(self, of: Access) -> None:
        self.now, self.unix_now = 0.0, time.time()
        self.replaced: list[OpenedClient] = []
        self.refused: list[str] = []
        self.files: FollowedFiles[OpenedClient] = follow_client(
            of, self.replaced.append, self.refused.append, lambda: self.now, lambda: self.unix_now
        )
        self.api = ApiServer(lambda: self.files.current().client)

    def after_a_while(self) -> dict[str, Any]:
        """What the next request is answered, some time after the last one."""
        self.now += POLL_SECONDS
        return self.api.get(PODS.path("team"))


def kubeconfig(path: Path, user: dict[str, str], **cluster: str) -> Path:
    content = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def token(ends: float, number: int = 0) -> str:
    """As a service account's, of which a client reads the middle part."""
    said = json.dumps({"iat": ends - 3600.0, "exp": ends, "jti": str(number)}).encode()
    return f"e30.{base64.urlsafe_b64encode(said).decode().rstrip('=')}.x"


@pytest.fixture
def server() -> Iterator[KubeServer]:
    with KubeServer().running() as running:
        yield running


def test_a_replaced_token_file_is_sent_with_the_next_request(server: KubeServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    server.tokens = {"first": "agent"}
    here = Followed(Access(kubeconfig(tmp_path / "config", {"tokenFile": "token"}, server=server.address)))
    here.after_a_while()
    server.tokens = {"second": "agent"}
    with pytest.raises(Unauthorized):
        here.after_a_while()
    (tmp_path / "token").write_text("second\n")
    here.after_a_while()
    assert len(here.replaced) == 1


def test_with_an_empty_or_missing_token_file_the_token_before_is_sent(server: KubeServer, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    server.tokens = {"first": "agent"}
    here = Followed(Access(kubeconfig(tmp_path / "config", {"tokenFile": "token"}, server=server.address)))
    path.write_text("\n")
    here.after_a_while()
    path.unlink()
    here.after_a_while()
    here.after_a_while()
    assert len(here.refused) == 2
    assert all(str(path) in line for line in here.refused)
    path.write_text("second")
    server.tokens = {"second": "agent"}
    here.after_a_while()
    assert here.files.refusal == ""


def test_an_empty_token_file_at_the_start_is_said(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("")
    config = kubeconfig(tmp_path / "config", {"tokenFile": "token"}, server="http://127.0.0.1:1")
    with pytest.raises(BadAgentConfig, match="holds no token"):
        open_client(Access(config))


def test_a_token_that_has_expired_is_told_and_takes_nobodys_place(server: KubeServer, tmp_path: Path) -> None:
    path, now = tmp_path / "token", time.time()
    first, old, second = token(now + 3600.0), token(now - 1.0), token(now + 7200.0)
    path.write_text(first)
    server.tokens = dict.fromkeys((first, old, second), "agent")
    here = Followed(Access(kubeconfig(tmp_path / "config", {"tokenFile": "token"}, server=server.address)))
    assert here.files.value.token.ends_unix_seconds == pytest.approx(now + 3600.0)
    path.write_text(old)
    here.after_a_while()
    assert "the token of" in here.files.refusal
    assert "has expired" in here.files.refusal
    here.unix_now += 3600.0
    said = what_expired(secrets_of(here.files), here.unix_now)
    assert said.startswith("certificate kubernetes-token has expired")
    assert "what was put in its place is not used" in said
    path.write_text(second)
    here.after_a_while()
    assert what_expired(secrets_of(here.files), here.unix_now) == ""


def test_a_kubeconfig_is_read_again_and_another_cluster_in_it_is_refused(server: KubeServer, tmp_path: Path) -> None:
    path = tmp_path / "config"
    server.tokens = {"first": "agent"}
    here = Followed(Access(kubeconfig(path, {"token": "first"}, server=server.address)))
    here.after_a_while()
    server.tokens = {"second": "agent"}
    kubeconfig(path, {"token": "second"}, server=server.address)
    here.after_a_while()
    kubeconfig(path, {"token": "second"}, server="http://127.0.0.1:1")
    here.after_a_while()
    assert "names another server now, http://127.0.0.1:1" in here.files.refusal
    path.write_text("clusters: {", encoding="utf-8")
    here.after_a_while()
    assert "cannot be used" in here.files.refusal
    content = yaml.safe_load(kubeconfig(path, {"token": "second"}, server=server.address).read_text())
    content["users"].append({"name": "other", "user": {"token": "other"}})
    content["contexts"].append({"name": "y", "context": {"cluster": "c", "user": "other"}})
    content["current-context"] = "y"
    path.write_text(yaml.safe_dump(content))
    here.after_a_while()
    assert here.files.refusal == ""
    assert {asked.user for asked in server.asked} == {"agent"}, "the context of the start stays"


def test_a_pods_token_is_read_again(server: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = MountedSecret(tmp_path / "account")
    authority, now = MadeAuthority(), time.time()
    ca = authority.certificate(now - 60.0, now + DAY_SECONDS)
    account.put(token=b"first", ca_crt=ca)
    monkeypatch.setattr(access, "_TOKEN", account.folder / "token")
    monkeypatch.setattr(access, "_AUTHORITY", account.folder / "ca.crt")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    here = Followed(Access())
    assert here.files.value.authority.ends_unix_seconds == pytest.approx(now + DAY_SECONDS, abs=1.0)
    account.put(token=b"second", ca_crt=ca)
    with pytest.raises(ApiUnanswered):
        here.after_a_while()
    (client,) = (found.client for found in here.replaced)
    assert client.configuration.get_api_key_with_prefix("BearerToken") == "Bearer second"


class Secured:
    """An API server that says the serial number of its caller's certificate."""

    def __init__(self, authority: MadeAuthority) -> None:
        now = time.time()
        self.authority, self.begins, self.ends = authority, now - DAY_SECONDS, now + DAY_SECONDS

    @contextlib.contextmanager
    def running(self, folder: Path) -> Iterator[str]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.show(context, folder)
        context.load_verify_locations(cadata=self.authority.certificate(self.begins, self.ends).decode())
        context.verify_mode = ssl.CERT_REQUIRED
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Serial)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # whoever does not trust it hangs up
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def show(self, context: ssl.SSLContext, folder: Path, signer: MadeAuthority | None = None) -> None:
        """Serve from now on with a certificate of this authority."""
        certificate, key = (signer or self.authority).pair("kubernetes", self.begins, self.ends)
        path = folder / "server.pem"
        path.write_bytes(certificate + key)
        context.load_cert_chain(path)


class _Serial(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        serial = self.connection.getpeercert()["serialNumber"]  # type: ignore[attr-defined]  # an SSL socket
        body = json.dumps({"serial": serial}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


Put = Callable[..., str]


@pytest.fixture
def certified(tmp_path: Path) -> Iterator[tuple[Followed, Put, Path]]:
    """A client with a certificate, what puts another one in its place (and says its number), and the folder."""
    secured = Secured(MadeAuthority())
    secret = MountedSecret(tmp_path / "mounted")

    def put(ends: float = secured.ends) -> str:
        certificate, key = secured.authority.pair("agent", secured.begins, ends)
        ca = secured.authority.certificate(secured.begins, secured.ends)
        secret.put(tls_crt=certificate, tls_key=key, ca_crt=ca)
        number = f"{x509.load_pem_x509_certificate(certificate).serial_number:X}"
        return number.zfill(len(number) + len(number) % 2)

    put()
    with secured.running(tmp_path) as address:
        user = {
            name: str(secret.folder / file)
            for name, file in (("client-certificate", "tls.crt"), ("client-key", "tls.key"))
        }
        config = kubeconfig(
            tmp_path / "config", user, server=address, **{"certificate-authority": str(secret.folder / "ca.crt")}
        )
        yield Followed(Access(config)), put, secret.folder


def test_a_replaced_client_certificate_is_shown_with_the_next_request(certified: tuple[Followed, Put, Path]) -> None:
    here, put, _ = certified
    first = here.after_a_while()["serial"]
    second = put()
    assert here.after_a_while()["serial"] == second != first
    ends = [secret.validity().ends_unix_seconds for secret in secrets_of(here.files) if secret.validity is not None]
    assert ends[0] == pytest.approx(ends[2], abs=1.0)
    assert ends[0] > time.time()


@pytest.mark.parametrize("name", ["tls.crt", "tls.key", "ca.crt"])
def test_with_a_file_that_cannot_be_used_new_connections_show_the_certificate_before(
    certified: tuple[Followed, Put, Path], name: str
) -> None:
    here, put, folder = certified
    first = here.after_a_while()["serial"]
    (folder / name).write_bytes(b"")
    for _ in range(3):
        here.files.value.client.rest_client.pool_manager.clear()  # as if the server had closed what was open
        assert here.after_a_while()["serial"] == first
    (line,) = here.refused
    assert name in line
    second = put()
    assert here.after_a_while()["serial"] == second


def test_a_client_certificate_that_has_expired_takes_nobodys_place(certified: tuple[Followed, Put, Path]) -> None:
    here, put, _ = certified
    first = here.after_a_while()["serial"]
    put(time.time() - 10.0)
    assert here.after_a_while()["serial"] == first
    assert "the client certificate of" in here.files.refusal


def test_an_agent_tells_of_what_it_shows_its_cluster(server: KubeServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(token(time.time() + 3600.0))
    config = kubeconfig(tmp_path / "config", {"tokenFile": "token"}, server=server.address)
    telemetry = AgentTelemetry()
    parts = AgentParts(tmp_path, "drf", None, threading.Event().wait, time.monotonic, telemetry)
    with structlog.testing.capture_logs():
        backend = open_backend(KubernetesBackendSettings(kubeconfig=config), parts)
    assert isinstance(backend, KubernetesBackend)
    value = telemetry.registry.get_sample_value
    expiry = value("fedl2_agent_certificate_expiry_seconds", {"certificate": "kubernetes-token"})
    assert expiry == pytest.approx(time.time() + 3600.0, abs=60.0)
    assert value("fedl2_agent_secret_refused_flag", {"secret": "kubernetes"}) == 0.0
