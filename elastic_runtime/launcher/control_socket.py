"""Sockets on which a job's coordinator answers: nobody else can be there while it is away and started again.

Where all of a job is on one machine it is a Unix socket in the job's folder, which only its owner may enter; where none
can be there (its path is longer than the system's 107 bytes, or its file system has none), in a folder of its own among
the temporary ones, as closed. Where there has to be a port the launcher listens on it, as long as it lives, and hands
the socket to each coordinator.

Deviation: no SO_REUSEPORT, by which a coordinator could listen beside a launcher that only holds the port: every other
process of the same user number can do so too, and in containers that share the machine's network that is anybody.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elastic_runtime.control.addresses import path_of_socket, socket_address
from elastic_runtime.errors import BadInput

_NAME = "control"
_PREFIX = "fedl2-job-"
_BACKLOG = 512
"""Who connects while a coordinator is away; a job has some hundred members."""


class ControlPort:
    """Listens from its making until it is closed.

    Args:
        host: an address of this machine.
        port: 0: any that is free.

    Raises:
        BadInput: it cannot listen there.
    """

    def __init__(self, host: str, port: int) -> None:
        try:
            family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self._socket = socket.create_server(where, family=family, backlog=_BACKLOG)
        except OSError as error:
            raise BadInput(f"--bind {host} --port {port}: cannot be listened on ({error.strerror})") from error
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{shown}:{self._socket.getsockname()[1]}"
        self.descriptor: int | None = self._socket.fileno()

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()


class ControlSocket:
    """Finds the place; `close` removes what was made for it.

    Args:
        folder: the job's.

    Raises:
        BadInput: there is no place for it.
    """

    def __init__(self, folder: Path) -> None:
        self._own: Path | None = None
        path = folder / _NAME
        if not _can_be(path):
            try:
                self._own = Path(tempfile.mkdtemp(prefix=_PREFIX))  # mode 0700
            except OSError as error:
                raise BadInput(f"{tempfile.gettempdir()}: no folder can be made there ({error.strerror})") from error
            path = self._own / _NAME
            if not _can_be(path):
                self.close()
                raise BadInput(f"{path}: no Unix socket can be made there; set TMPDIR to a folder with a short name")
        self.address = socket_address(path)
        self.descriptor: int | None = None
        """A coordinator listens there itself."""

    def close(self) -> None:
        """Remove a folder that was made."""
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)


def remove_left(record: Mapping[str, Any] | None) -> None:
    """Remove the folder of a launcher that could not do it itself, by what its coordinator wrote."""
    path = path_of_socket(str((record or {}).get("address", "")))
    if path is not None and path.parent.name.startswith(_PREFIX) and path.parent.parent == Path(tempfile.gettempdir()):
        shutil.rmtree(path.parent, ignore_errors=True)


def _can_be(path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)  # of a coordinator that was killed
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(str(path))
        path.unlink()
    except OSError:
        return False
    return True
