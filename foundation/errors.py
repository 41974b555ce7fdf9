"""The root of every error that a program can explain in one line, and the exit codes that errors stand for.

A class says its exit code, and its subclasses inherit it. All else that is raised is a fault of the program itself, or
of the machine.
"""

from __future__ import annotations

import errno
from typing import ClassVar, Final

DONE: Final = 0
FAILED: Final = 1
BAD_INPUT: Final = 2
"""Wrong usage, or a file, option or setting that its author has to mend."""
UNREACHABLE: Final = 3
"""A server does not answer, or there is nothing to go on with until one does."""
INTERRUPTED: Final = 130
"""Ctrl-C, as shells count it."""

DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""A full disk. A quota or a limit on a file's size refuses in the same way, and is lifted in the same way."""
MISNAMED: Final = frozenset(
    {
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EEXIST,
        errno.EACCES,
        errno.EROFS,
        errno.ELOOP,
    }
)
"""What the system says of a name that somebody typed, rather than of a disk that failed."""


class ExpectedError(Exception):
    """An error whose message says what is wrong, where, and what to do.

    Attributes:
        exit_code: what a program ends with that ends for it.
    """

    exit_code: ClassVar[int] = FAILED
