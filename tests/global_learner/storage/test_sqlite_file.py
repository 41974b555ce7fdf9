"""A store's file beside processes that only look at it."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, insert, select

from global_learner.errors import StateUnusable
from global_learner.storage.commits import Commits, Losses
from global_learner.storage.database import SqliteFile

TABLES = MetaData()
NUMBERS = Table("numbers", TABLES, Column("number", Integer))


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[SqliteFile]:
    commits = Commits(folder)
    with contextlib.closing(commits), contextlib.closing(made(folder, commits)) as database:
        yield database


def made(folder: Path, commits: Commits) -> SqliteFile:
    return SqliteFile(folder / "numbers.sqlite", "numbers", "list of numbers", TABLES, commits)


def add(database: SqliteFile, number: int) -> None:
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


def begun(path: Path) -> None:
    """A file as a kill leaves it whose first transaction was cut off: half of it written, and a journal beside it."""
    scratch = path.with_name("scratch")
    scratch.mkdir()
    with contextlib.closing(sqlite3.connect(scratch / path.name, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE filler (content BLOB)")
        connection.executemany("INSERT INTO filler VALUES (?)", [(bytes(10_000),)] * 20)
        for name in (path.name, f"{path.name}-journal"):
            shutil.copy(scratch / name, path.with_name(name))
    assert path.stat().st_size > 0


def test_a_file_whose_very_first_transaction_was_killed_is_begun_anew(tmp_path: Path) -> None:
    begun(tmp_path / "numbers.sqlite")
    with opened(tmp_path) as database:
        add(database, 1)
    assert numbers(tmp_path / "numbers.sqlite") == [1]


def test_such_a_file_is_no_loss_and_listing_losses_leaves_it_as_it_is(tmp_path: Path) -> None:
    begun(tmp_path / "numbers.sqlite")
    commits = Commits(tmp_path, Losses.LIST)
    with contextlib.closing(commits), contextlib.closing(made(tmp_path, commits)):
        assert commits.losses == []
    assert (tmp_path / "numbers.sqlite-journal").exists()


WIDER = MetaData()
Table("numbers", WIDER, Column("number", Integer), Column("why", Integer))


@pytest.mark.parametrize("killed_after_it", [False, True])
def test_new_columns_raise_the_count_so_that_no_count_means_two_states(tmp_path: Path, killed_after_it: bool) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    with opened(folder) as database:
        add(database, 1)
    # As it is made for a loss to be accepted: nothing is written into the commit record unless there is one.
    commits = Commits(folder, Losses.ACCEPT)
    with contextlib.closing(commits):
        database = SqliteFile(folder / "numbers.sqlite", "numbers", "list of numbers", WIDER, commits)
        if killed_after_it:
            folder = killed(folder, tmp_path / "left")
        database.close()
    commits = Commits(folder)
    with contextlib.closing(commits):
        path = folder / "numbers.sqlite"
        with contextlib.closing(SqliteFile(path, "numbers", "list of numbers", WIDER, commits)) as database:
            add(database, 2)
    assert numbers(folder / "numbers.sqlite") == [1, 2]


@pytest.mark.parametrize("name", ["a?b", "a%41b", "a#b", "a b;c", "ä@b", "file:x"])
def test_a_path_is_taken_as_it_is(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    for number in (1, 2):
        with opened(folder) as database:
            add(database, number)
    assert numbers(folder / "numbers.sqlite") == [1, 2]
    assert [path.name for path in tmp_path.iterdir()] == [name]
    commits = Commits(folder, Losses.LIST)
    with contextlib.closing(commits), contextlib.closing(made(folder, commits)) as database, database.session() as read:
        assert read.execute(select(NUMBERS.c.number)).scalars().all() == [1, 2]


def test_a_flipped_bit_in_what_describes_the_tables_is_refused_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "numbers.sqlite"
    made(tmp_path, Commits(tmp_path)).close()
    original = path.read_bytes()
    refusals = []
    for at in range(3600, 4096, 2):
        path.write_bytes(original[:at] + bytes([original[at] ^ 0x80]) + original[at + 1 :])
        try:
            SqliteFile(path, "numbers", "list of numbers", TABLES, None).close()
        except StateUnusable as refusal:
            refusals.append(str(refusal))
    assert len(refusals) > 50
    assert all(str(path) in refusal for refusal in refusals)
