"""Checks before a job's folder is made: a mistake in the command line leaves nothing behind."""

from __future__ import annotations

import ast
import errno
import ipaddress
import os
import re
import socket
import ssl
from collections.abc import Collection, Sequence
from pathlib import Path

from elastic_runtime.control.credentials import is_loopback, no_password, read_pem
from elastic_runtime.errors import BadInput
from elastic_runtime.launcher.script_source import is_distributed, joins

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:")
_STARTER = re.compile(r"python[0-9.]*|torchrun|accelerate|deepspeed|mpirun|horovodrun")
"""Programs that start scripts, and are not named to us."""
_PAGE = "docs/guide/elastic.md shows how"
_MOST_FLIGHTS = 10
"""A handshake takes three or four."""


def check_script(script: Path) -> Path:
    """The absolute path of a script that Python can run.

    Raises:
        BadInput: missing, a folder, unreadable, or no Python.
    """
    if not script.exists():
        if _STARTER.fullmatch(script.name):
            raise BadInput(
                f"{script}: give the script itself, as in `elastic-run --workers 2 train.py`; elastic-run starts "
                "Python in each worker, and takes the place of torchrun"
            )
        raise BadInput(f"{script}: there is no such file; name the Python script that trains")
    if not script.is_file():
        raise BadInput(f"{script}: is no file; name the Python script that trains")
    try:
        source = script.read_bytes()
        compile(source, str(script), "exec", dont_inherit=True)
    except OSError as error:
        raise BadInput(f"{script}: cannot be read ({error.strerror})") from error
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.lineno else ""
        raise BadInput(f"{script}{where}: is no Python ({error.msg})") from error
    except ValueError as error:  # null bytes
        raise BadInput(f"{script}: is no Python ({error})") from error
    return script.absolute()


def check_joins(script: Path) -> None:
    """Refuse a script that does not join a job: each worker would train all of it, and for itself.

    Raises:
        BadInput: neither it nor a module beside it imports `elastic_runtime`.
    """
    tree = ast.parse(script.read_bytes(), filename=str(script))
    if joins(script, tree):
        return
    if is_distributed(tree):
        raise BadInput(
            f"{script}: sets up torch's own data parallelism (init_process_group, DistributedDataParallel) and does "
            "not import elastic_runtime; elastic-run is no torchrun: leave both out and train with "
            f"elastic_runtime.join ({_PAGE})"
        )
    raise BadInput(
        f"{script}: does not import elastic_runtime, so that each worker would train all of it; train with "
        f"elastic_runtime.join ({_PAGE}), or give --joins-elsewhere if a module joins that is not beside the script"
    )


def own_words(script: Path, arguments: Sequence[str], options: Collection[str]) -> list[str]:
    """Options of ours that stand behind the script, where nothing in its source says that they are the script's too.

    Args:
        arguments: what stands behind it; after `--` all is meant for the script.
    """
    words = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    typed = dict.fromkeys(word.partition("=")[0] for word in words)
    found = [word for word in typed if word.startswith("--") and word in options]
    source = script.read_text(encoding="utf-8", errors="replace") if found else ""
    return [word for word in found if re.search(rf"{re.escape(word)}(?![\w-])", source) is None]


def check_checkpoints(folder: Path, restore: bool) -> None:
    """Refuse a folder where a job cannot write its checkpoints, or has none to begin from.

    What they hold is looked at by the coordinator, which reads all of it.

    Raises:
        BadInput: no folder, or none that can be written to; checkpoints where none should be, or none to restore.
    """
    if _SCHEME.fullmatch(folder.parts[0] if folder.parts else ""):
        raise BadInput(f"--checkpoints {folder}: elastic-run writes to folders, and to no URL; name a folder")
    from elastic_runtime.checkpoint.catalog import list_checkpoints  # noqa: PLC0415  (most jobs name no folder)

    try:
        there = folder.exists()
        if there and not folder.is_dir():
            raise BadInput(f"--checkpoints {folder}: is no folder; name another place")
        nearest = next((above for above in (folder, *folder.absolute().parents) if above.exists()), Path("/"))
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise BadInput(f"--checkpoints {folder}: {nearest} cannot be written to; name another place")
        found = list_checkpoints(folder) if there else []
    except OSError as error:
        raise BadInput(f"--checkpoints {folder}: cannot be used ({error.strerror}); name another place") from error
    if restore and not found:
        raise BadInput(
            f"--restore --checkpoints {folder}: there is no complete checkpoint; name an earlier job's folder"
        )
    if found and not restore:
        raise BadInput(
            f"--checkpoints {folder}: holds checkpoints of an earlier job, up to step {found[-1][0]}; give --restore "
            "to begin from the newest, or name another place"
        )


def check_secrecy(bind: str, has_tls: bool, insecure: bool) -> None:
    """Refuse a job that others can reach without TLS, unless that is allowed.

    Raises:
        BadInput: the address is not loopback, and neither was said.
    """
    if not (has_tls or insecure or is_loopback(f"{bind}:0")):
        raise BadInput(
            f"--bind {bind}: other machines reach it; give --certificate, --key and --ca, or, on a network of your "
            "own, --allow-insecure"
        )


def check_address(bind: str, port: int, option: str) -> None:
    """Refuse an address where nothing can listen now.

    Raises:
        BadInput: no address of this machine, a wildcard, or a port that is taken.
    """
    if bind in ("", "0.0.0.0", "::"):  # noqa: S104  (refused)
        raise BadInput(f"--bind {bind}: tasks have to know where to connect to; name one address of this machine")
    try:
        family, _, _, _, address = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise BadInput(f"--bind {bind}: is no address ({error.strerror})") from error
    except UnicodeError as error:  # of the encoding of names of hosts
        raise BadInput(f"--bind {bind}: is no address; name one of this machine, such as 127.0.0.1") from error
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the coordinator will: no rest of a past one
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise BadInput(f"{option} {port}: something listens on {bind}:{port} already; name another") from error
            raise BadInput(f"--bind {bind} {option} {port}: cannot be listened on ({error.strerror})") from error


def check_tls(certificate: Path, key: Path, ca: Path, host: str) -> None:
    """Refuse a certificate at `host` that members who trust `ca` would refuse; in memory, without a socket.

    Tried before anything is started, as such members see a network that is broken, and try again and again.

    Raises:
        BadInput: a file cannot be read or is of another kind, the key is another certificate's, or a member would
            refuse the certificate: signed by somebody else, expired, or of another host.
    """
    for path, option in ((certificate, "--certificate"), (key, "--key"), (ca, "--ca")):
        read_pem(path, f"file of {option},")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        server.load_cert_chain(certificate, key, password=no_password)
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
