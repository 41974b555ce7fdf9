"""A note of a version survives a restart, stands alone, and leaves the version as it was."""

from pathlib import Path

import pytest
from learner_makers import policy

from global_learner.errors import UnknownPolicyVersion
from global_learner.registry.cards import version_message
from global_learner.registry.registry import Registry

pytestmark = pytest.mark.usefixtures("each_database")


def published(folder: Path) -> Registry:
    registry = Registry(folder)
    for seed in range(2):
        registry.publish(policy(seed=seed), 10 * seed, float(seed), {}, 0.0, assign_all=False)
    return registry


def test_a_note_is_kept_with_who_and_when_and_the_log_has_those_before(tmp_path: Path) -> None:
    registry = published(tmp_path)
    before = registry.version(2)[0]
    assert registry.note_version(2, "of the new queue", "ada", 5.0)
    assert not registry.note_version(2, "of the new queue", "eve", 6.0)
    assert registry.note_version(2, "of the old queue", "eve", 7.0)
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
    told = version_message(card).note
    assert (told.text, told.actor, told.unix_seconds) == ("of the old queue", "eve", 7.0)
    assert not version_message(again.version(1)[0]).HasField("note")


def test_a_note_is_taken_away_by_an_empty_one(tmp_path: Path) -> None:
    registry = published(tmp_path)
    assert not registry.note_version(1, "", "ada", 5.0)
    assert registry.note_version(1, "the first", "ada", 6.0)
    assert registry.note_version(1, "", "ada", 7.0)
    assert registry.version(1)[0].note is None
    assert [(line.action, line.detail) for line in registry.audit()][-2:] == [
        ("noted", "the first"),
        ("note-removed", "the first"),
    ]


def test_of_a_version_that_is_not_there_nothing_is_said(tmp_path: Path) -> None:
    with pytest.raises(UnknownPolicyVersion):
        published(tmp_path).note_version(9, "of the new queue", "ada", 5.0)
