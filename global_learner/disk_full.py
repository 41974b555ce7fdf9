"""Telling a full disk from a broken one: a full one is waited for, since what it lacks comes back.

A limit on the size of files or a quota counts as full too: it refuses in the same way, and is lifted in the same way.
"""

from __future__ import annotations

import errno
import sqlite3

from sqlalchemy.exc import DBAPIError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

RETRY_SECONDS = 1.0
"""How often a full disk is tried again: soon enough for people, too seldom to be a load."""


def is_disk_full(error: BaseException) -> bool:
    """Whether this error says that there is no room, and nothing worse."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    if isinstance(error, DBAPIError):
        return getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return False
