"""The audit log's chain: whatever was changed, removed or put in between is named at the next start."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from global_learner.errors import StateUnusable
from global_learner.registry.registry import Registry

LINES = 6


def written(folder: Path) -> Path:
    with contextlib.closing(Registry(folder)) as registry:
        for number in range(LINES):
            registry.note("ada", "pinned", f"v{number}", "by hand", 1_700_000_000.0 + number)
    return folder / "registry.sqlite"


def changed(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize(
    ("statement", "line"),
    [
        ("UPDATE audit SET actor = 'eve' WHERE number = 3", 3),
        ("UPDATE audit SET unix_seconds = unix_seconds + 1 WHERE number = 1", 1),
        ("UPDATE audit SET detail = '' WHERE number = 6", 6),
        ("UPDATE audit SET digest = '' WHERE number = 4", 4),
        ("DELETE FROM audit WHERE number = 2", 2),
        ("DELETE FROM audit WHERE number = 1", 1),
    ],
)
def test_where_the_chain_breaks_is_named(tmp_path: Path, statement: str, line: int) -> None:
    path = written(tmp_path)
    changed(path, statement)
    with pytest.raises(StateUnusable, match=rf"registry.sqlite: the audit log breaks at line {line}: .*accept-loss"):
        Registry(tmp_path)


def test_a_log_from_before_there_was_a_chain_is_chained_as_it_is(tmp_path: Path) -> None:
    path = written(tmp_path)
    changed(path, "ALTER TABLE audit DROP COLUMN digest")
    with contextlib.closing(Registry(tmp_path)) as registry:
        assert [entry.subject for entry in registry.audit()] == [f"v{number}" for number in range(LINES)]
    changed(path, "UPDATE audit SET actor = 'eve' WHERE number = 3")
    with pytest.raises(StateUnusable, match="line 3"):
        Registry(tmp_path)


def test_a_whole_log_goes_on(tmp_path: Path) -> None:
    written(tmp_path)
    written(tmp_path)
    with contextlib.closing(Registry(tmp_path)) as registry:
        assert len(registry.audit()) == 2 * LINES
