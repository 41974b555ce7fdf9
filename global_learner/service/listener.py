"""Listener of the service, in plain text or with TLS; whatever is wrong is said before anything starts."""

from __future__ import annotations

import resource
import ssl
from pathlib import Path

import grpc
import structlog

from global_learner.errors import BadConfig
from global_learner.operator_socket import SocketAddress
from global_learner.settings import TlsSettings

_log = structlog.get_logger()

_OWN_FILES = 512
"""Files and sockets that the learner needs beside its callers' connections: log, snapshots, registry, HTTP."""


def room_for_connections(wanted: int) -> int:
    """How many connections may be open, so that files can be opened beside them; raises the process's limit for it.

    Whoever opens connections without end must not keep the learner from opening its log.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    room = wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - _OWN_FILES))
    if room < wanted:
        _log.warning("connections-limited", wanted=wanted, room=room, advice="allow more open files: ulimit -n")
    return room


def bind(setting: str, server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    """Add a port to a server that has not started, in plain text without credentials; the bound port.

    Args:
        setting: that names the port, for the message.

    Raises:
        BadConfig: the address cannot be listened on.
    """
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise BadConfig(f"{setting} {address}: cannot be listened on; name another port") from error


def bind_socket(server: grpc.aio.Server, address: SocketAddress, path: Path) -> None:
    """Add the operators' socket to a server that has not started; only its own user may open it.

    Raises:
        BadConfig: it cannot be made.
    """
    try:
        path.unlink(missing_ok=True)  # a killed learner's; whoever has the state directory's lock is the only one now
        server.add_insecure_port(address.target)
        path.chmod(0o600)
    except (OSError, RuntimeError) as error:
        raise BadConfig(f"{path}: no socket can be made there; use a state_dir on another file system") from error


def read_credentials(tls: TlsSettings) -> grpc.ServerCredentials:
    """The server's side of TLS.

    Raises:
        BadConfig: a file cannot be read or is not what it should be.
    """
    key = _read("key_file", tls.key_file)
    certificate = _read("certificate_file", tls.certificate_file)
    authority = _read("client_ca_file", tls.client_ca_file) if tls.client_ca_file is not None else None
    if tls.key_file.stat().st_mode & 0o007:
        _log.warning("key-exposed", file=str(tls.key_file), advice="others on this machine may read it: chmod 600")
    # gRPC finds out at the first handshake, and says it to the caller; Python's own ssl says it now.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.certificate_file, tls.key_file)
    except (ssl.SSLError, OSError) as error:
        raise BadConfig(
            f"tls: {tls.certificate_file} and {tls.key_file} are no certificate and its key ({error}); name a PEM pair"
        ) from error
    if authority is not None:
        try:
            context.load_verify_locations(tls.client_ca_file)
        except (ssl.SSLError, OSError) as error:
            raise BadConfig(f"tls.client_ca_file {tls.client_ca_file}: holds no PEM certificate ({error})") from error
    return grpc.ssl_server_credentials(
        [(key, certificate)], root_certificates=authority, require_client_auth=authority is not None
    )


def _read(setting: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadConfig(f"tls.{setting} {path}: cannot be read ({error.strerror})") from error
