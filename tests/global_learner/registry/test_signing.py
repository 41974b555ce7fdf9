"""Keys of a learner on disk, what they sign, and how they are replaced."""

import json
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from learner_makers import policy

from global_learner.errors import BadRequest, StateUnusable
from global_learner.registry.fleet_keys import FOLDER, FleetKeys
from global_learner.registry.registry import Registry
from global_learner.registry.signing import Signing, signed_document
from policy_net.errors import NotTrusted, SecretExposed
from policy_net.exchange.signed_documents import KeyRole, SignedDocument, timestamp, version_statement

pytestmark = pytest.mark.usefixtures("each_database")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class State:
    """A state directory with two versions, opened again and again."""

    def __init__(self, folder: Path, execute: Callable[[Path, str], None]) -> None:
        self.folder, self.clock, self._execute = folder, Clock(), execute
        self.registry = Registry(folder, signing=self.signing())
        for step in (0, 10):
            self.registry.publish(policy(seed=step), step, 1e9 + step, {}, 0.0, assign_all=False)

    def signing(self) -> Signing:
        return Signing(self.folder, 600.0, self.clock)

    def reopened(self) -> Registry:
        self.registry.close()
        self.registry = Registry(self.folder, signing=self.signing())
        return self.registry

    def execute(self, statement: str) -> None:
        self._execute(self.folder / "registry.sqlite", statement)

    def believed(self) -> list[int]:
        """Versions whose statement bears the present key's signature."""
        signing = self.registry.signing
        assert signing is not None
        found = []
        for card in self.registry.versions():
            try:
                stated = version_statement(signed_document(card.signed), signing.root)
            except NotTrusted:
                continue
            assert (stated.version, stated.digest, stated.parent) == (card.version, card.digest, card.parent)
            found.append(card.version)
        return found


@pytest.fixture
def state(tmp_path: Path, each_database: Callable[[Path, str], None]) -> Iterator[State]:
    made = State(tmp_path, each_database)
    yield made
    made.registry.close()


def test_keys_are_made_once_and_only_their_owner_reads_them(state: State) -> None:
    folder = state.folder / FOLDER
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.glob("*.key")} == {
        f"{role}.key": 0o600 for role in KeyRole
    }
    assert FleetKeys(folder).root == FleetKeys(folder).root


def test_a_version_is_signed_as_it_is_published_and_after_a_restart_it_still_is(state: State) -> None:
    assert state.believed() == [1, 2]
    assert state.reopened().sign_versions() == (0, [])
    assert state.believed() == [1, 2]


def test_versions_of_before_there_were_signatures_are_signed_at_start(state: State) -> None:
    state.registry.close()
    state.execute("ALTER TABLE versions DROP COLUMN signed")
    shutil.rmtree(state.folder / FOLDER)
    registry = state.reopened()
    assert state.believed() == []
    assert registry.sign_versions() == (2, [])
    assert state.believed() == [1, 2]


def test_a_version_whose_file_is_damaged_is_not_signed(state: State) -> None:
    state.execute("UPDATE versions SET signed = NULL")
    damaged = state.registry.policy_path(2)
    damaged.write_bytes(b"x" + damaged.read_bytes()[1:])
    assert state.reopened().sign_versions() == (1, [2])
    assert state.believed() == [1]


@pytest.mark.parametrize(
    "change", ["digest = 'd'", "parent = 0", "spec_digest = 's'", "head_step = 11", "signed = x'00'"]
)
def test_what_was_changed_since_it_was_signed_is_named_and_never_signed_again(state: State, change: str) -> None:
    state.execute(f"UPDATE versions SET {change} WHERE version = 2")  # noqa: S608  (of the list above)
    assert state.reopened().sign_versions() == (0, [2])
    signing = state.registry.signing
    assert signing is not None
    signing.rotate(KeyRole.VERSION)
    assert state.registry.sign_versions() == (1, [2])


@pytest.mark.parametrize("role", KeyRole)
def test_a_rotated_key_signs_what_the_old_one_signed(state: State, role: KeyRole) -> None:
    signing = state.registry.signing
    assert signing is not None
    before = signing.root
    signing.rotate(role)
    state.registry.sign_versions()
    assert signing.root.number == 2
    assert {one for one in KeyRole if signing.root.keys[one] != before.keys[one]} == {role}
    assert state.believed() == [1, 2]
    timestamp(signing.timestamp("north", 1), signing.root)
    state.reopened()
    assert state.believed() == [1, 2]
    assert FleetKeys(state.folder / FOLDER).root == signing.root


@pytest.mark.parametrize("content", [b"", b"another's"])
def test_a_key_file_that_is_changed_while_the_learner_runs_counts_for_nothing(state: State, content: bytes) -> None:
    path = state.folder / FOLDER / "version.key"
    path.write_bytes(content)
    state.registry.publish(policy(seed=20), 20, 1e9 + 20, {}, 0.0, assign_all=False)
    assert state.believed() == [1, 2, 3]
    assert state.registry.signing is not None
    state.registry.signing.rotate(KeyRole.VERSION)
    state.registry.sign_versions()
    assert state.believed() == [1, 2, 3]
    assert FleetKeys(state.folder / FOLDER).root.number == 2, "a rotation leaves files that a start can read"


def test_a_rotation_that_was_cut_off_is_of_the_old_key_before_the_root_is_written_and_of_the_new_after(
    state: State, tmp_path: Path
) -> None:
    keys = FleetKeys(state.folder / FOLDER)
    before = keys.root
    keys.next_root(KeyRole.VERSION)  # the new key is on disk, the root is not
    assert FleetKeys(state.folder / FOLDER).root == before
    waiting = (state.folder / FOLDER / "version.next.key").read_bytes()
    keys.rotate(KeyRole.VERSION)
    # As after a death between the root's file and the key's name.
    (state.folder / FOLDER / "version.key").rename(state.folder / FOLDER / "version.next.key")
    state.reopened()
    assert (state.folder / FOLDER / "version.key").read_bytes() == waiting
    assert state.registry.sign_versions() == (2, [])
    assert state.believed() == [1, 2]


def test_a_root_key_that_is_kept_elsewhere_is_not_needed_but_for_the_next_root(state: State, tmp_path: Path) -> None:
    from global_learner.registry.fleet_keys import read_signing_key
    from policy_net.exchange.signed_documents import signed

    kept = tmp_path / "offline.key"
    (state.folder / FOLDER / "root.key").rename(kept)
    state.reopened()
    signing = state.registry.signing
    assert signing is not None
    assert not signing.keys.root_key_present
    payload = signing.keys.next_root(KeyRole.VERSION)
    with pytest.raises(BadRequest, match="not signed"):
        signing.install(KeyRole.VERSION, signed(payload, []))
    with pytest.raises(BadRequest, match="more than the timestamp key"):
        signing.install(KeyRole.TIMESTAMP, signed(payload, [read_signing_key(kept)]))
    signing.install(KeyRole.VERSION, signed(payload, [read_signing_key(kept)]))
    assert state.registry.sign_versions() == (2, [])
    assert state.believed() == [1, 2]
    with pytest.raises(BadRequest, match="--new-root-key"):
        signing.keys.next_root(KeyRole.ROOT)


@pytest.mark.parametrize("name", ["version.key", "timestamp.key"])
def test_a_key_that_is_gone_damaged_or_anothers_stops_the_start_with_its_name(
    state: State, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = state.folder / FOLDER / name
    other = FleetKeys(tmp_path_factory.mktemp("other") / FOLDER)
    foreign = (other._folder / name).read_bytes()
    for content in (foreign, b"", b"no key", None):
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
            path.chmod(0o600)
        with pytest.raises(StateUnusable, match=name):
            state.signing()


def test_a_key_that_others_may_read_stops_the_start(state: State) -> None:
    (state.folder / FOLDER / "version.key").chmod(0o644)
    with pytest.raises(SecretExposed):
        state.signing()


@pytest.mark.parametrize("damage", ["", "{", "{}", '{"payload": "{}", "signatures": []}'])
def test_a_root_that_is_damaged_stops_the_start(state: State, damage: str) -> None:
    (state.folder / FOLDER / "root-00001.json").write_text(damage)
    with pytest.raises(StateUnusable, match="root"):
        state.signing()


def number_of(document: SignedDocument) -> int:
    return int(json.loads(document.payload)["number"])


def test_a_timestamp_is_made_again_when_it_says_something_else_or_a_third_of_its_life_is_over(state: State) -> None:
    signing = state.signing()
    first = signing.timestamp("north", 1)
    state.clock.now += 199.0
    assert signing.timestamp("north", 1) is first
    second = signing.timestamp("north", 2)
    state.clock.now += 201.0
    third = signing.timestamp("north", 2)
    assert number_of(first) < number_of(second) < number_of(third)
    assert timestamp(third, signing.root).expires_unix_seconds >= state.clock.now + 600.0


def test_numbers_of_timestamps_rise_over_restarts_also_where_the_clock_was_set_back(state: State) -> None:
    numbers = []
    for shift in (0.0, -900.0, 10.0, 5000.0, -5000.0):
        state.clock.now += shift
        numbers.append(number_of(state.signing().timestamp("north", 1)))
    assert numbers == sorted(set(numbers))
