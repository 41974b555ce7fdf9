"""Notes and aliases of versions survive a restart, and leave the version as it was."""

from pathlib import Path

import pytest
from learner_makers import policy

from global_learner.errors import BadRequest, UnknownPolicyVersion
from global_learner.registry import version_remarks
from global_learner.registry.cards import version_message
from global_learner.registry.registry import Registry
from global_learner.storage.audit import Order

pytestmark = pytest.mark.usefixtures("each_database")


def published(folder: Path) -> Registry:
    registry = Registry(folder)
    for seed in range(2):
        registry.publish(policy(seed=seed), 10 * seed, float(seed), {}, 0.0, assign_all=False)
    return registry


def test_a_note_is_kept_with_who_and_when_and_the_log_has_those_before(tmp_path: Path) -> None:
    registry = published(tmp_path)
    before = registry.version(2)[0]
    assert registry.remarks.note(2, "of the new queue", Order("ada", 5.0))
    assert not registry.remarks.note(2, "of the new queue", Order("eve", 6.0))
    assert registry.remarks.note(2, "of the old queue", Order("eve", 7.0))
    registry.close()
    again = Registry(tmp_path)
    card = again.version(2)[0]
    assert card.note == {"text": "of the old queue", "actor": "eve", "unix_seconds": 7.0}
    assert (card.digest, card.signed, card.pinned, card.kept) == (
        before.digest,
        before.signed,
        before.pinned,
        before.kept,
    )
    assert again.version(1)[0].note is None
    assert [(line.actor, line.action, line.subject, line.detail) for line in again.audit()][-2:] == [
        ("ada", "noted", "v2", "of the new queue"),
        ("eve", "noted", "v2", "of the old queue"),
    ]
    reported = version_message(card).note
    assert (reported.text, reported.actor, reported.unix_seconds) == ("of the old queue", "eve", 7.0)
    assert not version_message(again.version(1)[0]).HasField("note")


def test_a_note_is_taken_away_by_an_empty_one(tmp_path: Path) -> None:
    registry = published(tmp_path)
    assert not registry.remarks.note(1, "", Order("ada", 5.0))
    assert registry.remarks.note(1, "the first", Order("ada", 6.0))
    assert registry.remarks.note(1, "", Order("ada", 7.0))
    assert registry.version(1)[0].note is None
    assert [(line.action, line.detail) for line in registry.audit()][-2:] == [
        ("noted", "the first"),
        ("note-removed", "the first"),
    ]


def test_of_a_version_that_is_not_there_nothing_is_said(tmp_path: Path) -> None:
    with pytest.raises(UnknownPolicyVersion):
        published(tmp_path).remarks.note(9, "of the new queue", Order("ada", 5.0))


def test_an_alias_means_one_version_at_a_time_and_outlives_a_restart(tmp_path: Path) -> None:
    registry = published(tmp_path)
    assert registry.remarks.give_alias("steady", 1, False, Order("ada", 5.0)) == 0
    assert registry.remarks.give_alias("steady", 1, False, Order("ada", 5.5)) == 1
    assert registry.remarks.give_alias("first", 1, False, Order("ada", 6.0, "as it was")) == 0
    with pytest.raises(BadRequest, match="'steady' is v1's: `policyctl version alias v2 steady --move`"):
        registry.remarks.give_alias("steady", 2, False, Order("eve", 7.0))
    assert registry.remarks.give_alias("steady", 2, True, Order("eve", 8.0, "better")) == 1
    registry.close()
    again = Registry(tmp_path)
    assert [card.aliases for card in again.versions()] == [("first",), ("steady",)]
    assert list(version_message(again.version(2)[0]).aliases) == ["steady"]
    assert again.remarks.take_alias("first", Order("eve", 9.0, "unused")) == 1
    assert again.version(1)[0].aliases == ()
    assert [(line.actor, line.action, line.subject, line.detail) for line in again.audit()] == [
        ("ada", "alias-given", "v1", "steady"),
        ("ada", "alias-given", "v1", "first: as it was"),
        ("eve", "alias-given", "v2", "steady, which was v1's: better"),
        ("eve", "alias-removed", "v1", "first: unused"),
    ]


@pytest.mark.parametrize(
    "alias", ["v2", "v1.2", "v2-ok", "latest", "head", "Steady", "2nd", "-x", "a b", "", "a" * 64, "à"]
)
def test_a_word_that_means_something_else_or_is_none_is_no_alias(tmp_path: Path, alias: str) -> None:
    registry = published(tmp_path)
    with pytest.raises(BadRequest, match="alias"):
        registry.remarks.give_alias(alias, 1, False, Order("ada", 5.0))
    assert registry.version(1)[0].aliases == ()
    assert registry.audit() == []


def test_there_are_not_more_aliases_than_anybody_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_remarks, "_MOST_ALIASES", 2)
    registry = published(tmp_path)
    registry.remarks.give_alias("a", 1, False, Order("ada", 5.0))
    registry.remarks.give_alias("b", 2, False, Order("ada", 5.0))
    with pytest.raises(BadRequest, match="2 aliases already; `policyctl version unalias`"):
        registry.remarks.give_alias("c", 2, False, Order("ada", 5.0))
    assert registry.remarks.give_alias("a", 2, True, Order("ada", 6.0)) == 1  # one that is moved is none more


def test_an_alias_that_no_version_has_and_a_version_that_is_not_there(tmp_path: Path) -> None:
    registry = published(tmp_path)
    with pytest.raises(UnknownPolicyVersion, match="no version has the alias 'steady'"):
        registry.remarks.take_alias("steady", Order("ada", 5.0))
    with pytest.raises(UnknownPolicyVersion, match="no version v9"):
        registry.remarks.give_alias("steady", 9, False, Order("ada", 5.0))
    assert registry.audit() == []
