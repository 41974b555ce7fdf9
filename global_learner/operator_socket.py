"""Unix socket of operators in the state directory: it lets in the learner's own user alone, and no cluster fills it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from global_learner.errors import BadLearnerConfig

OPERATOR_SOCKET = "operator.sock"
SCHEME = "unix:"
_LONGEST_PATH = 100
"""Bytes of a socket's path that every system takes; Linux takes 107."""


def socket_name(fence: int | None) -> str:
    """The socket's name in the folder of a term, with its fencing number; None of a learner that shares no database.

    So a learner that ends late removes its own, not its successor's.
    """
    return OPERATOR_SOCKET if fence is None else f"operator-{fence}.sock"


class SocketAddress:
    """A socket's address for gRPC; a path that is too long for a socket is reached by its folder's open descriptor."""

    def __init__(self, path: Path) -> None:
        """Open the folder if need be; to be closed when the socket is no longer used.

        Raises:
            BadConfig: the path is too long for this system, or its folder cannot be opened.
        """
        self.path = path
        self._folder: int | None = None
        whole = path.absolute()
        if len(os.fsencode(whole)) > _LONGEST_PATH:
            if sys.platform != "linux":
                raise BadLearnerConfig(f"{whole}: too long for a socket; use a state_dir with a shorter path")
            try:
                self._folder = os.open(whole.parent, os.O_PATH | os.O_DIRECTORY)
            except OSError as error:
                raise BadLearnerConfig(
                    f"{whole}: no learner's socket ({error.strerror}); name its state_dir's"
                ) from error
            whole = Path(f"/proc/self/fd/{self._folder}") / path.name
        self.target = f"{SCHEME}{whole}"

    def close(self) -> None:
        """Let go of the folder."""
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None
