"""What retention removes, and what it never does."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from learner_makers import policy

from global_learner.errors import UnknownPolicyVersion
from global_learner.registry.policy_store import superfluous
from global_learner.registry.registry import Registry
from global_learner.registry.tables import VersionRow
from global_learner.rollout.rollout_store import RolloutStore
from global_learner.storage.audit import Order

pytestmark = pytest.mark.usefixtures("each_database")

DAY_SECONDS = 86_400.0


def rows(count: int, pinned: set[int], reset_base: int) -> list[VersionRow]:
    return [
        VersionRow(
            version=n,
            parent=n - 1,
            pinned=n in pinned,
            reset_base=n == reset_base,
            created_unix_seconds=n * DAY_SECONDS,
        )
        for n in range(count, 0, -1)
    ]


@given(
    count=st.integers(1, 12),
    pinned=st.sets(st.integers(1, 12)),
    assigned=st.sets(st.integers(1, 12)),
    base=st.integers(0, 12),
    versions=st.integers(0, 12),
)
@pytest.mark.parametrize("each_database", ["sqlite"], indirect=True)
def test_nothing_that_somebody_may_need_goes(count, pinned, assigned, base, versions) -> None:
    gone = {row.version for row in superfluous(rows(count, pinned, base), assigned, versions)}
    needed = {1, count, *pinned, *assigned, base}
    assert not gone & (needed | {version - 1 for version in needed})
    newest = set(range(count - versions + 1, count + 1)) if versions else set(range(1, count + 1))
    assert not gone & newest
    # and whatever nobody needs does go
    parents = {version - 1 for version in needed if version <= count}
    assert gone == set(range(1, count + 1)) - newest - needed - parents


def published(folder: Path, count: int) -> Registry:
    registry = Registry(folder)
    for n in range(count):
        registry.publish(policy(seed=n), 10 * n, n * DAY_SECONDS, {}, 0.0, assign_all=False, head=f"head {n}".encode())
    return registry


def test_the_moments_go_with_the_version(tmp_path: Path) -> None:
    registry = published(tmp_path, 5)
    assert registry.head_bytes(2) == b"head 1"
    assert registry.prune(1) == 2
    assert len(list((tmp_path / "heads").iterdir())) == len(list((tmp_path / "policies").iterdir())) == 3
    with pytest.raises(UnknownPolicyVersion, match="v2 is no longer kept"):
        registry.head_bytes(2)
    assert [card.kept for card in registry.versions()] == [True, False, False, True, True]
    assert registry.versions()[1].head_size_bytes == 0
    registry.close()


def test_the_version_to_which_a_cluster_would_go_back_stays(tmp_path: Path) -> None:
    registry = published(tmp_path, 8)
    registry.register("north", False, [], 0.0)
    spec_digest = policy().spec.digest
    for moment, version in enumerate((3, 0, 5, 3), start=1):
        RolloutStore(registry).assign(version, spec_digest, None, Order("ada", float(moment)), to_newest=False)
    assert registry.prune(1) == 1
    # v3 acts, and v5 was acted on before it; the parents of both stay too
    assert [card.version for card in registry.versions() if card.kept] == [1, 2, 3, 4, 5, 7, 8]
    registry.close()


def test_a_pinned_version_stays_until_it_is_unpinned(tmp_path: Path) -> None:
    registry = published(tmp_path, 5)
    assert registry.remarks.pin(3, True, Order("ada", 7.0))
    assert not registry.remarks.pin(3, True, Order("ada", 8.0))
    assert registry.prune(1) == 0, "v3, and v2, its parent"
    assert registry.remarks.pin(3, False, Order("bob", 9.0))
    assert registry.prune(1) == 2
    with pytest.raises(UnknownPolicyVersion, match="no longer kept"):
        registry.remarks.pin(3, True, Order("ada", 10.0))
    with pytest.raises(UnknownPolicyVersion, match="v99"):
        registry.remarks.pin(99, True, Order("ada", 10.0))
    lines = [(line.actor, line.action, line.subject) for line in registry.audit()]
    assert lines == [("ada", "pinned", "v3"), ("bob", "unpinned", "v3")]
    registry.close()


def test_a_version_with_an_alias_stays_until_it_has_none(tmp_path: Path) -> None:
    registry = published(tmp_path, 5)
    registry.remarks.give_alias("steady", 3, False, Order("ada", 7.0))
    assert registry.prune(1) == 0, "v3, and v2, its parent"
    registry.remarks.take_alias("steady", Order("ada", 8.0))
    assert registry.prune(1) == 2
    with pytest.raises(UnknownPolicyVersion, match="no longer kept"):
        registry.remarks.give_alias("steady", 3, False, Order("ada", 9.0))
    registry.close()


def test_what_a_crash_left_behind_is_collected(tmp_path: Path) -> None:
    registry = published(tmp_path, 2)
    (tmp_path / "policies" / f"{'a' * 64}.safetensors").write_bytes(b"published, but for the last step")
    (tmp_path / "heads" / f"{'b' * 64}.head").write_bytes(b"so was this")
    assert registry.collect_orphans() == 2
    assert registry.collect_orphans() == 0
    registry.policy_bytes(2)
    assert registry.head_bytes(2) == b"head 1"
    registry.close()


def test_a_registry_of_an_earlier_program_is_read_on(
    tmp_path: Path, each_database: Callable[[Path, str], None]
) -> None:
    registry = published(tmp_path, 2)
    registry.register("north", False, [], 0.0)
    registry.close()
    path = tmp_path / "registry.sqlite"
    for column in ("pinned", "reset_base", "details", "head_digest", "head_size_bytes", "score"):
        each_database(path, f"alter table versions drop column {column}")
    each_database(path, "alter table clusters drop column held")
    each_database(path, "drop table audit")
    again = Registry(tmp_path)
    card = again.versions()[1]
    assert (card.pinned, card.score, card.head_size_bytes, card.details.origin) == (False, None, 0, "")
    assert again.head_bytes(2) is None
    assigned = RolloutStore(again).assign(2, card.spec_digest, ["north"], Order("ada", 1.0), to_newest=False).assigned
    assert assigned[0].held
    again.close()
