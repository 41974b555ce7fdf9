"""What an agent believes of a version: the learner's own keys sign, somebody in between tampers."""

import dataclasses
from pathlib import Path

import pytest
from agent_fakes import Clock
from signing_fleet import DATA, SigningFleet

from policy_net.errors import IdentityFileError, VersionRejected
from policy_net.exchange.fleet_trust import TRUST_FILE, FleetTrust
from policy_net.exchange.policy_file import digest_of
from policy_net.exchange.signed_documents import (
    Distrust,
    KeyRole,
    SignedDocument,
)
from policy_net.exchange.wire import FetchedPolicy


class Pinned:
    """An agent that has acted on v1; its clock stands at 100."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.fleet = folder, Clock(), SigningFleet()
        self.trust = self.restarted()
        self.trust.check(self.fleet.version(1))

    def restarted(self, allow_unsigned: bool = False) -> FleetTrust:
        return FleetTrust(self.folder, "north", allow_unsigned, self.clock)

    def refuses(self, fetched: FetchedPolicy, reason: Distrust) -> str:
        before = (self.folder / TRUST_FILE).read_bytes()
        for trust in (self.trust, self.restarted()):
            with pytest.raises(VersionRejected) as caught:
                trust.check(fetched)
            assert caught.value.reason == reason
            assert "\n" not in str(caught.value)
        assert (self.folder / TRUST_FILE).read_bytes() == before
        self.trust.check(self.fleet.version(1))  # and believes its fleet as before
        return str(caught.value)


@pytest.fixture
def agent(tmp_path: Path) -> Pinned:
    return Pinned(tmp_path)


def test_the_first_keys_are_pinned_and_believed_after_a_restart(agent: Pinned) -> None:
    assert agent.restarted().pinned == agent.fleet.root
    agent.restarted().check(agent.fleet.version(2))


def test_another_digest_than_the_signed_one_is_refused(agent: Pinned) -> None:
    agent.refuses(agent.fleet.version(2, data=DATA + b"x", digest=digest_of(DATA + b"x")), Distrust.BAD_DIGEST)


def test_a_version_under_another_number_is_refused(agent: Pinned) -> None:
    agent.refuses(agent.fleet.version(2, version=3), Distrust.OTHER_VERSION)


def test_a_statement_that_was_changed_is_refused(agent: Pinned) -> None:
    sound = agent.fleet.version(2)
    assert sound.signed is not None
    payload = sound.signed.payload.replace(b'"parent":1', b'"parent":0')
    assert payload != sound.signed.payload
    agent.refuses(
        dataclasses.replace(sound, signed=SignedDocument(payload, sound.signed.signatures)), Distrust.BAD_SIGNATURE
    )


def test_another_fleets_keys_are_refused_with_the_way_out(agent: Pinned) -> None:
    said = agent.refuses(SigningFleet("0" * 32).version(2), Distrust.OTHER_FLEET)
    assert TRUST_FILE in said
    assert "enroll" in said


def test_another_fleets_signature_under_our_roots_is_refused(agent: Pinned) -> None:
    foreign = SigningFleet(agent.fleet.root.fleet).version(2)
    agent.refuses(dataclasses.replace(foreign, roots=tuple(agent.fleet.roots)), Distrust.BAD_SIGNATURE)


def test_an_old_answer_that_is_sent_again_is_refused(agent: Pinned) -> None:
    old = agent.fleet.version(1)
    agent.trust.check(agent.fleet.version(2))
    before = agent.trust
    for trust in (before, agent.restarted()):
        with pytest.raises(VersionRejected) as caught:
            trust.check(old)
        assert caught.value.reason == Distrust.REPLAYED


def test_an_answer_that_has_expired_is_refused(agent: Pinned) -> None:
    fetched = agent.fleet.version(2)
    agent.clock.now = 199.0
    agent.trust.check(fetched)
    agent.clock.now = 200.0
    with pytest.raises(VersionRejected, match=r"expired 0 s ago.*clock") as caught:
        agent.trust.check(fetched)
    assert caught.value.reason == Distrust.EXPIRED


def test_an_assignment_of_another_cluster_or_version_is_refused(agent: Pinned) -> None:
    fleet = agent.fleet
    agent.refuses(fleet.version(2, timestamp=fleet.timestamp(2, cluster="south")), Distrust.OTHER_ASSIGNMENT)
    agent.refuses(fleet.version(2, timestamp=fleet.timestamp(1)), Distrust.OTHER_ASSIGNMENT)


@pytest.mark.parametrize("role", KeyRole)
def test_a_rotated_key_is_followed_and_the_old_one_no_longer_believed(agent: Pinned, role: KeyRole) -> None:
    old = agent.fleet.version(2)
    agent.fleet.rotate(role)
    agent.trust.check(agent.fleet.version(2))
    assert agent.restarted().pinned == agent.fleet.root
    agent.refuses(old, Distrust.OLD_ROOT)


def test_taking_the_signatures_away_is_a_downgrade_and_refused_even_where_unsigned_is_allowed(agent: Pinned) -> None:
    bare = FetchedPolicy(2, DATA, digest_of(DATA))
    agent.refuses(bare, Distrust.UNSIGNED)
    with pytest.raises(VersionRejected):
        agent.restarted(allow_unsigned=True).check(bare)
    for part in ("signed", "timestamp", "roots"):
        agent.refuses(agent.fleet.version(2, **{part: () if part == "roots" else None}), Distrust.UNSIGNED)


def test_an_older_learner_is_refused_with_what_to_do_unless_that_is_allowed(tmp_path: Path) -> None:
    bare = FetchedPolicy(2, DATA, digest_of(DATA))
    with pytest.raises(VersionRejected, match=r"learner\.unsigned_versions to allow"):
        FleetTrust(tmp_path, "north", False, Clock()).check(bare)
    trust = FleetTrust(tmp_path, "north", True, Clock())
    trust.check(bare)
    trust.check(SigningFleet().version(2))  # the learner was updated
    with pytest.raises(VersionRejected):
        trust.check(bare)


def test_keys_of_an_enrollment_take_the_place_of_an_earlier_one(agent: Pinned) -> None:
    other = SigningFleet("0" * 32)
    agent.trust.on_enrolled(other.roots)
    agent.trust.check(other.version(1))
    assert agent.restarted().pinned == other.root


def test_an_enrollment_with_an_older_learner_or_damaged_keys_changes_nothing(agent: Pinned) -> None:
    agent.trust.on_enrolled([])
    agent.trust.on_enrolled([SignedDocument(b"{}", ())])
    agent.trust.check(agent.fleet.version(2))


def test_a_version_that_was_followed_by_another_while_it_was_fetched_is_acted_with(agent: Pinned) -> None:
    fleet = agent.fleet
    agent.refuses(fleet.version(2, timestamp=fleet.timestamp(3)), Distrust.OTHER_ASSIGNMENT)
    assigned_by = fleet.timestamp(2)
    agent.trust.check(fleet.version(2, timestamp=fleet.timestamp(3)), assigned_by=assigned_by)


@pytest.mark.parametrize("case", ["another-version", "another-cluster", "another-fleet", "expired", "taken-back"])
def test_what_it_was_fetched_for_has_to_be_the_fleets_and_of_now(agent: Pinned, case: str) -> None:
    said = SigningFleet() if case == "another-fleet" else agent.fleet
    assigned_by = said.timestamp(
        1 if case == "another-version" else 2,
        cluster="west" if case == "another-cluster" else "north",
        expires=100 if case == "expired" else 200,
    )
    followed = agent.fleet.version(2, timestamp=agent.fleet.timestamp(1 if case == "taken-back" else 3))
    with pytest.raises(VersionRejected) as caught:
        agent.trust.check(followed, assigned_by=assigned_by)
    assert caught.value.reason == Distrust.OTHER_ASSIGNMENT


def test_heartbeats_are_held_to_the_same(agent: Pinned) -> None:
    fleet = agent.fleet
    old = fleet.timestamp(1)
    agent.trust.check_assignment(1, fleet.timestamp(1))
    for document, reason in (
        (old, Distrust.REPLAYED),
        (None, Distrust.UNSIGNED),
        (fleet.timestamp(2), Distrust.OTHER_ASSIGNMENT),
    ):
        with pytest.raises(VersionRejected) as caught:
            agent.trust.check_assignment(1, document)
        assert caught.value.reason == reason


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"root": {"payload": "{}", "signatures": []}, "timestamp_number": 1}']
)
def test_a_damaged_trust_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / TRUST_FILE).write_text(content)
    with pytest.raises(IdentityFileError, match=r"trust\.json"):
        FleetTrust(tmp_path, "north", False, Clock())
