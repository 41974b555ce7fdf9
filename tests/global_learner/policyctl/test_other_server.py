"""`policyctl` that is sent to another port than a learner's: what is there, and what to do, in one line of ours."""

import contextlib
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from page_server import pages

from cluster_agent.fleet.learner_client import WORDS
from global_learner.enrollment.authority import Authority, open_authority
from global_learner.errors import LearnerError
from global_learner.identity import CallerRole
from global_learner.policyctl.client import AdminClient, TlsFiles
from policy_net.exchange.generated import fleet_pb2, fleet_pb2_grpc
from policy_net.exchange.identity_file import new_key, parse_identity
from policy_net.exchange.other_server import OtherServers

PATIENCE_SECONDS = 60.0
BROKEN = "failed to connect to all addresses; last error: UNKNOWN: ipv4:"
GRPC_WORDS = (
    "failed to connect",
    "last error",
    "ipv4:",
    "HTTP/2",
    "SSL_ERROR",
    "Handshake",
    "UNAVAILABLE",
    "Method not found",
)


pytestmark = pytest.mark.heavy


@dataclass(frozen=True)
class Certificates:
    """An authority with a server's pair, and an admin's identity file."""

    authority: Authority
    server: tuple[bytes, bytes]
    admin: Path


def certificates(folder: Path) -> Certificates:
    folder.mkdir(mode=0o700)
    now = time.time()
    authority = open_authority(folder, now)
    key = new_key()
    public_key = load_pem_private_key(key, None).public_key()
    issued = authority.for_client(public_key, "policyctl", now, 3600.0, CallerRole.ADMIN)
    parse_identity(key + issued.pem + authority.pem).write(folder / "admin.pem")
    return Certificates(authority, authority.for_server(("127.0.0.1",), now), folder / "admin.pem")


@contextlib.contextmanager
def calls(
    certified: Certificates | None = None, admin: fleet_pb2_grpc.AdminServicer | None = None, of_callers: bool = True
) -> Iterator[int]:
    """A gRPC server, which has a certificate if there are any, and wants one of callers; its port."""
    server = grpc.server(ThreadPoolExecutor(1))
    if admin is not None:
        fleet_pb2_grpc.add_AdminServicer_to_server(admin, server)
    if certified is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        pem = certified.authority.pem
        credentials = grpc.ssl_server_credentials([certified.server], pem, require_client_auth=of_callers)
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


def reported(port: int, *words: str) -> str:
    """The one line that `policyctl fleet` prints about a port; it ends with 3, and none of it is gRPC's.

    In a process of its own: the server here prints lines of gRPC's too.
    """
    program = Path(sys.executable).with_name("policyctl")
    command = [str(program), "fleet", "--learner", f"127.0.0.1:{port}", "--timeout", "60", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1), done.stderr
    assert [word for word in GRPC_WORDS if word in done.stderr] == []
    return done.stderr


def test_a_port_of_pages_is_called_one() -> None:
    with pages() as port:
        line = reported(port)
    assert f"no learner answers at 127.0.0.1:{port}: what listens there speaks HTTP" in line
    assert "name the HOST:PORT of a learner's `listen` with --learner" in line


def test_a_port_of_encrypted_pages_is_called_one(tmp_path: Path) -> None:
    made = certificates(tmp_path / "authority")
    pair = tmp_path / "pair.pem"
    pair.write_bytes(b"".join(made.server))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    with pages(context) as port:
        assert "what listens there speaks HTTPS; name the HOST:PORT of a learner's" in reported(port)


def test_a_learner_that_wants_certificates_is_called_one(tmp_path: Path) -> None:
    with calls(certificates(tmp_path / "authority")) as port:
        assert "what listens there speaks TLS; name your identity file with --cert" in reported(port)


def test_certificates_of_another_fleet_are_called_that(tmp_path: Path) -> None:
    ours, theirs = certificates(tmp_path / "ours"), certificates(tmp_path / "theirs")
    with calls(theirs) as port:
        line = reported(port, "--cert", str(ours.admin))
    assert "but not with these certificates (its certificate is signed by another authority); name those of" in line


def test_a_learner_without_certificates_wants_none(tmp_path: Path) -> None:
    with calls() as port:
        line = reported(port, "--cert", str(certificates(tmp_path / "authority").admin))
    assert "what listens there speaks no TLS; leave out --cert, --key and --ca (and FEDL2_CERT)" in line


def test_a_port_of_enrollments_is_called_one(tmp_path: Path) -> None:
    made = certificates(tmp_path / "authority")
    with calls(made, of_callers=False) as port:
        line = reported(port, "--cert", str(made.admin))
    assert f"no learner answers at 127.0.0.1:{port}: what listens there takes no operator's commands, as a" in line
    assert "enrollment port (identity.enroll_port) does; name the HOST:PORT of a learner's `listen`" in line


def test_a_port_of_enrollments_is_told_from_a_learners_also_without_a_certificate(tmp_path: Path) -> None:
    with calls(certificates(tmp_path / "authority"), of_callers=False) as port:
        line = reported(port)
        agents = OtherServers(WORDS, 60.0).explained("Register", "UNAVAILABLE", BROKEN, f"127.0.0.1:{port}", False)
    assert "asks for no certificate, as a learner's enrollment port (identity.enroll_port) does; name the HOST" in line
    assert (
        f"no learner answers at 127.0.0.1:{port}: what listens there speaks TLS and asks for no certificate" in agents
    )
    assert "; set learner.address to the HOST:PORT of a learner's `listen`; if it is that, name this agent's" in agents


class Earlier(fleet_pb2_grpc.AdminServicer):
    """A learner that knows the oldest call alone."""

    def GetFleet(self, request: object, context: object) -> fleet_pb2.GetFleetReply:  # noqa: N802
        return fleet_pb2.GetFleetReply()


def test_a_learner_of_before_is_no_other_server() -> None:
    with calls(admin=Earlier()) as port:
        client = AdminClient(f"127.0.0.1:{port}", TlsFiles(), PATIENCE_SECONDS)
        with pytest.raises(LearnerError, match="of an earlier version, which does not know this command; upgrade it"):
            client.ask(fleet_pb2.ListAuditRequest())
        client.close()


def test_who_is_not_there_is_to_be_started() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, not listening
        line = reported(held.getsockname()[1])
    assert "nobody listens there; start it, or name another one with --learner" in line
