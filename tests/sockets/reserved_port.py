"""A port for a program that a test starts, ends and starts again: nobody else gets it meanwhile."""

from __future__ import annotations

import socket


class ReservedPort:
    """A port of this machine's loopback, bound and never listened on.

    Programs that are told to can listen there all the same (`SO_REUSEADDR`); the system gives it to nobody who asks for
    any free one, and whoever connects while no program listens is refused.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"

    def close(self) -> None:
        self._socket.close()
