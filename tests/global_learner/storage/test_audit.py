"""The audit log's chain: whatever was changed, removed or put in between is named at the next start."""

import contextlib
import sqlite3
from pathlib import Path

import pytest
from learner_makers import policy

from global_learner.errors import StateUnusable
from global_learner.registry.registry import Registry
from global_learner.storage.audit_chain import VERSIONS, Chain, checked_chain

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
        *earlier, begun = registry.audit()
    assert [line.subject for line in earlier] == [f"v{number}" for number in range(LINES)]
    assert (begun.actor, begun.action, begun.subject) == ("global-learner", "chain-begun", "audit")
    assert begun.detail.startswith(f"{LINES} lines of an earlier program, as they stood")
    with contextlib.closing(Registry(tmp_path)) as registry:
        assert len(registry.audit()) == LINES + 1, "it is begun once"
    changed(path, "UPDATE audit SET actor = 'eve' WHERE number = 3")
    with pytest.raises(StateUnusable, match="line 3"):
        Registry(tmp_path)


def test_a_whole_log_goes_on(tmp_path: Path) -> None:
    written(tmp_path)
    written(tmp_path)
    with contextlib.closing(Registry(tmp_path)) as registry:
        assert len(registry.audit()) == 2 * LINES


def test_what_is_told_since_a_moment_has_no_gap_and_names_what_it_follows(tmp_path: Path) -> None:
    with contextlib.closing(Registry(tmp_path)) as registry:
        for number, seconds in enumerate((10.0, 20.0, 5.0, 30.0), start=1):  # a clock that was set back
            registry.note("ada", "pinned", f"v{number}", "", seconds)
        whole = registry.audit(-1e300)
        assert [line.number for line in whole] == [1, 2, 3, 4]
        assert checked_chain(VERSIONS, whole) == Chain(VERSIONS, 1, 4, whole[-1].digest)
        late = registry.audit(15.0)
        assert [line.number for line in late] == [2, 3, 4]
        assert late[0].before == whole[0].digest
        assert registry.audit(31.0) == []


def test_a_refusal_is_one_line_for_each_cluster_version_and_reason(tmp_path: Path) -> None:
    for _ in range(2):
        with contextlib.closing(Registry(tmp_path)) as registry:
            if registry.newest() is None:
                registry.publish(policy(), 0, 1.0, {}, 0.0, assign_all=True)
            for reported in (("north", 1, "unusable"), ("north", 1, "expired"), ("south", 1, "unusable")):
                registry.note_refusal(*reported, 5.0)
                registry.note_refusal(*reported, 6.0)
            for unknown in (2, 2**63, 2**64 - 1):
                registry.note_refusal("north", unknown, "unusable", 7.0)
            lines = [(line.actor, line.action, line.subject, line.detail) for line in registry.audit()]
    assert lines == [
        ("north", "version-refused", "north", "v1: unusable"),
        ("north", "version-refused", "north", "v1: expired"),
        ("south", "version-refused", "south", "v1: unusable"),
    ]
