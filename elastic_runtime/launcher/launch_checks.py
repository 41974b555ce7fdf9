"""What is looked at before a job's folder is made: a mistake in the command line leaves nothing behind."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

from elastic_runtime.errors import BadInput


def check_script(script: Path) -> Path:
    """The absolute path of a script that Python can run.

    Raises:
        BadInput: missing, a folder, unreadable, or no Python.
    """
    if not script.exists():
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


def check_address(bind: str, port: int, option: str) -> None:
    """See that something can listen there now.

    Args:
        option: of the port, for the message.

    Raises:
        BadInput: no address of this machine, a wildcard, or a port that is taken.
    """
    if bind in ("", "0.0.0.0", "::"):  # noqa: S104  (refused)
        raise BadInput(f"--bind {bind}: tasks have to know where to connect to; name one address of this machine")
    try:
        family, _, _, _, address = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise BadInput(f"--bind {bind}: is no address ({error.strerror})") from error
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the coordinator will: no rest of a past one
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise BadInput(f"{option} {port}: something listens on {bind}:{port} already; name another") from error
            raise BadInput(f"--bind {bind} {option} {port}: cannot be listened on ({error.strerror})") from error
