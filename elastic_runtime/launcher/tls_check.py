"""Tries a job's certificate, key and CA out before anything is started, as members that refuse one look like a network
that is broken: they try again and again.
"""

from __future__ import annotations

import ipaddress
import ssl
from pathlib import Path

from elastic_runtime.control.credentials import read_pem
from elastic_runtime.errors import BadInput

_MOST_FLIGHTS = 10
"""A handshake takes three or four."""


def check_tls(certificate: Path, key: Path, ca: Path, host: str) -> None:
    """See that members that trust `ca` take `certificate` for the coordinator's at `host`; in memory, without a socket.

    Raises:
        BadInput: a file cannot be read or is of another kind, the key is another certificate's, or a member would
            refuse the certificate: signed by somebody else, expired, or of another host.
    """
    for path, option in ((certificate, "--certificate"), (key, "--key"), (ca, "--ca")):
        read_pem(path, f"file of {option},")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        server.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError, OSError) as error:
        raise BadInput(
            f"--certificate {certificate} --key {key}: are no certificate and its key without a password "
            f"({_reason(error)}); give a pair in PEM format"
        ) from error
    member = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    member.hostname_checks_common_name = True  # as gRPC does where a certificate has no other name
    try:
        member.load_verify_locations(ca)
    except (ssl.SSLError, OSError) as error:
        raise BadInput(f"--ca {ca}: holds no certificates ({_reason(error)}); give a file in PEM format") from error
    try:
        _shake_hands(server, member, host)
    except (ssl.SSLError, ValueError) as error:
        raise BadInput(
            f"--certificate {certificate}: whoever checks it against --ca {ca} refuses it as the certificate of {host} "
            f"({_reason(error)})"
        ) from error


def _shake_hands(server: ssl.SSLContext, member: ssl.SSLContext, host: str) -> None:
    to_server, to_member = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        member.wrap_bio(to_member, to_server, server_hostname=_plain(host)),
        server.wrap_bio(to_server, to_member, server_side=True),
    ]
    for _ in range(_MOST_FLIGHTS):
        waiting = []
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting.append(side)
        sides = waiting
        if not sides:
            return
    raise ssl.SSLError("the handshake did not end")


def _plain(host: str) -> str:
    """An IPv6 address has many forms, and certificates are compared with one."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)).lower().replace("_", " ")


def _no_password() -> str:
    """A key with a password has nobody here to type it."""
    raise ValueError("it has a password")
