"""Files that hold secrets: only their owner may read them, and they are whole or absent whenever the writer dies."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from policy_net.errors import SecretExposed
from policy_net.paths import check_replaceable

_OTHERS = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP
"""A group may read: that is how containers are handed their secrets."""


def write_private(path: Path, data: bytes) -> None:
    """Replace a file's content whole; mode 600 from its first byte on, on disk when this returns.

    Raises:
        OSError: the disk refuses.
    """
    check_replaceable(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def make_private_folder(path: Path) -> None:
    """Make a folder that only its owner may enter; one that is there is closed to others.

    Raises:
        OSError: the disk refuses, or it is somebody else's.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)


def read_private(path: Path) -> bytes:
    """The content of a file that nobody but its owner, or its group, may read.

    Raises:
        SecretExposed: others may; whoever could read it may have done so.
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
        if mode & _OTHERS:
            raise SecretExposed(
                f"{path}: others on this machine may read or change it (mode {mode:o}), and it holds a secret: "
                f"run chmod 600 {path}, and replace it if somebody may have copied it"
            )
        return stream.read()
