"""Whether a database file is what it was: SQLite itself looks only at the pages that a query needs."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine, text

from global_learner.errors import StateUnusable


def check_whole(engine: Engine, path: Path) -> None:
    """Read through a database, its indexes against its tables; a byte in an unindexed value is not noticed.

    Raises:
        StateUnusable: pages are missing or damaged.
        SQLAlchemyError: it cannot be read at all.
    """
    with engine.connect() as connection:
        said = connection.execute(text("PRAGMA integrity_check(1)")).scalar()
    if said != "ok":
        raise StateUnusable(f"{path}: damaged ({said}); restore the state directory from a copy")
