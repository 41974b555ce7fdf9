"""SQLite files of the learner: durable at every commit, read through once, damage named."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import DatabaseError

from global_learner.errors import StateUnusable


def durable_engine(path: Path) -> Engine:
    """An engine on a file, which is made if it is not there; nothing is read yet."""
    engine = create_engine(f"sqlite:///{path}")
    event.listen(engine, "connect", _be_durable)
    return engine


@contextlib.contextmanager
def usable(path: Path, what: str) -> Iterator[None]:
    """A file that cannot be read as what it should be is an unusable state.

    Raises:
        StateUnusable: the body failed in the database.
    """
    try:
        yield
    except DatabaseError as error:
        raise StateUnusable(f"{path}: no usable {what} ({error.orig})") from error


def check_whole(engine: Engine, path: Path) -> None:
    """Read through a database, its indexes against its tables; a byte in an unindexed value is not noticed.

    SQLite itself looks only at the pages that a query needs.

    Raises:
        StateUnusable: pages are missing or damaged.
        SQLAlchemyError: it cannot be read at all.
    """
    with engine.connect() as connection:
        said = connection.execute(text("PRAGMA integrity_check(1)")).scalar()
    if said != "ok":
        raise StateUnusable(f"{path}: damaged ({said}); restore the state directory from a copy")


def _be_durable(connection: Any, _record: object) -> None:
    """What every connection begins with: WAL, synced at every commit; foreign keys."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=5000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
