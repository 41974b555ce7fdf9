import contextlib
import sqlite3
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from global_learner.postgres.lease import LeaseTable
from global_learner.postgres.server import Server
from global_learner.storage.database import Database
from global_learner.storage.databases import SharedDatabase, open_database

# Test modules share makers; with importlib import mode the folder is not on the path by itself.
sys.path.insert(0, str(Path(__file__).parent))

Execute = Callable[[Path, str], None]
"""Executes a statement in the database that a learner would open at a path."""


@pytest.fixture(params=["sqlite", "postgresql"])
def each_database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Execute]:
    """Opens what a test does not say otherwise of in SQLite files, and then in a PostgreSQL server."""
    if request.param == "sqlite":
        yield _execute_in_file
        return
    from postgres_server import shared_server

    shared = shared_server()

    @cache
    def database(folder: Path) -> tuple[str, Server, int]:
        url = shared.new_database()
        with contextlib.closing(LeaseTable(Server(url))) as table:
            fence = table.take("test", 3600.0)
        assert fence is not None
        return url, Server(url), fence

    def elsewhere(path: Path, store: str, what: str, tables: Any, commits: Any, shared: None) -> Database:
        return open_database(path, store, what, tables, commits, SharedDatabase(*database(path.parent)[1:]))

    def execute(path: Path, statement: str) -> None:
        statement = statement.replace("x'00'", r"'\x00'")
        shared.sql(database(path.parent)[0], f"SET search_path = learner_{path.stem}; {statement}")

    # On a machine that stands still for a moment, as a busy one does, nobody has a lock that others wait for.
    monkeypatch.setattr("global_learner.postgres.server._IDLE_MILLISECONDS", 30_000)
    for user in ("registry.registry", "beliefs.belief_store", "enrollment.identity_store"):
        monkeypatch.setattr(f"global_learner.{user}.open_database", elsewhere)
    yield execute


def _execute_in_file(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)
