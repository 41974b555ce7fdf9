"""Names of files as people type them: whether something is there, and whether it may be replaced."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def is_file(path: Path) -> bool:
    """Whether something stands under this name, and it is no folder."""
    try:
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):  # a name too long, say, or with a null character
        return False


def is_folder(path: Path) -> bool:
    """Whether a folder stands under this name."""
    try:
        return path.is_dir()
    except (OSError, ValueError):  # as above
        return False


def check_replaceable(path: Path) -> None:
    """See that a file may take this name: it is free, or an ordinary file's.

    Files are written beside their name and then moved there, which would replace a device such as /dev/null by a file
    for everybody on the machine.

    Raises:
        OSError: the name is a folder's, a device's or a pipe's, or cannot be one.
    """
    try:
        path.name.encode()
        taken = path.exists()
    except ValueError as error:
        raise OSError(errno.EINVAL, "no file can have this name", str(path)) from error
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if taken and not path.is_file():
        raise OSError(errno.EINVAL, "it is a device or a pipe, and no file", str(path))
