"""An empty file that is there while a member takes part in its job: what a container's readiness probe looks for."""

from __future__ import annotations

from pathlib import Path

from elastic_runtime.errors import BadInput


class ReadyFile:
    """One process's file; one that is left of an earlier process is removed.

    Raises:
        BadInput: there can be no such file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.parent.is_dir() or path.is_dir():
            raise BadInput(f"the ready file {path} cannot be written: its folder is missing, or it is a folder")
        self.clear()

    def mark(self) -> None:
        """The member takes part.

        Raises:
            BadInput: the file cannot be written.
        """
        try:
            self._path.touch()
        except OSError as error:
            raise BadInput(f"the ready file {self._path} cannot be written: {error.strerror}") from error

    def clear(self) -> None:
        """The member takes no part, or not yet.

        Raises:
            BadInput: the file is there and cannot be removed.
        """
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise BadInput(f"the ready file {self._path} cannot be removed: {error.strerror}") from error
