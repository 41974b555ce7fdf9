"""A store's file beside processes that only look at it."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, Table, insert

from global_learner.errors import StateUnusable
from global_learner.storage.commits import Commits
from global_learner.storage.database import Database, create_missing

TABLES = MetaData()
NUMBERS = Table("numbers", TABLES, Column("number", Integer))


def create(engine: Engine) -> None:
    create_missing(engine, TABLES)


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Database]:
    commits = Commits(folder)
    with contextlib.closing(commits), contextlib.closing(made(folder, commits)) as database:
        yield database


def made(folder: Path, commits: Commits) -> Database:
    return Database(folder / "numbers.sqlite", "numbers", "list of numbers", create, commits)


def add(database: Database, number: int) -> None:
    with database.transaction() as session:
        session.execute(insert(NUMBERS).values(number=number))


def numbers(path: Path) -> list[int]:
    """What anybody sees in the file; whoever closes it last moves the WAL into it."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT number FROM numbers ORDER BY number")]


def killed(folder: Path, copy: Path) -> Path:
    """What a kill at this moment leaves of a state directory."""
    shutil.copytree(folder, copy)
    return copy


def test_who_reads_during_a_commit_does_not_make_the_file_look_damaged_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("global_learner.storage.database._BUSY_MILLISECONDS", 10)
    folder = tmp_path / "state"
    folder.mkdir()
    with opened(folder) as database:
        add(database, 1)
        with contextlib.closing(sqlite3.connect(folder / "numbers.sqlite")) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM numbers").fetchall() == [(1,)]
            add(database, 2)
            left = killed(folder, tmp_path / "left")
    assert (left / "numbers.sqlite-wal").stat().st_size > 0, "the reader kept it from being moved"
    assert numbers(left / "numbers.sqlite") == [1, 2]
    assert not (left / "numbers.sqlite-wal").exists(), "it was moved by who looked"
    with opened(left) as database:
        add(database, 3)
    assert numbers(left / "numbers.sqlite") == [1, 2, 3]


def test_once_nobody_reads_a_flipped_bit_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("global_learner.storage.database._BUSY_MILLISECONDS", 10)
    path = tmp_path / "numbers.sqlite"
    with opened(tmp_path) as database:
        add(database, 1)
        with contextlib.closing(sqlite3.connect(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM numbers").fetchall()
            add(database, 2)
        add(database, 77)
    data = bytearray(path.read_bytes())
    at = data.rindex(bytes([77]))
    data[at] ^= 1
    path.write_bytes(data)
    commits = Commits(tmp_path)
    with contextlib.closing(commits), pytest.raises(StateUnusable, match="damaged, or changed by somebody else"):
        made(tmp_path, commits)
