"""Listener of the service, in plain text or with TLS; whatever is wrong is said before anything starts."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import grpc
import structlog

from global_learner.errors import BadLearnerConfig
from global_learner.operator_socket import SocketAddress
from policy_net.exchange.connection_files import ConnectionFiles

_log = structlog.get_logger()

_OWN_FILES = 512
"""Files and sockets that the learner needs beside its callers' connections: log, snapshots, registry, HTTP."""


def most_connections(desired: int) -> int:
    """How many connections may be open beside the files that the log needs; raises the process's limit for it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = desired + _OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    most = desired if soft == resource.RLIM_INFINITY else max(1, min(desired, soft - _OWN_FILES))
    if most < desired:
        _log.warning("connections-limited", wanted=desired, room=most, advice="allow more open files: ulimit -n")
    return most


def bind(setting: str, server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    """Add a port to a server that has not started, in plain text without credentials; the bound port.

    Raises:
        BadConfig: the address of this setting cannot be listened on.
    """
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise BadLearnerConfig(f"{setting} {address}: cannot be listened on; name another port") from error


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
        raise BadLearnerConfig(
            f"{path}: no socket can be made there; use a state_dir on another file system"
        ) from error


def server_credentials(files: Callable[[], ConnectionFiles], *, only_certified: bool) -> grpc.ServerCredentials:
    """The server's side of TLS; each handshake is made with what is in force by then, and open connections stay.

    Args:
        files: the learner's certificate, its key, and what callers' are checked against; from any thread.
    """
    given = files()

    def newer() -> grpc.ServerCertificateConfiguration | None:
        nonlocal given
        found = files()
        if found is given:
            return None  # as before
        given = found
        return _configuration(found)

    # gRPC takes None for "as before"; its types do not say so.
    return grpc.dynamic_ssl_server_credentials(_configuration(given), newer, only_certified)  # type: ignore[arg-type]


def _configuration(files: ConnectionFiles) -> grpc.ServerCertificateConfiguration:
    assert files.key is not None and files.certificate is not None  # noqa: S101, PT018  (of a server there are both)
    return grpc.ssl_server_certificate_configuration([(files.key, files.certificate)], files.authority)
