"""Which versions of a learner's registry are trusted: those that its fleet signed for this region and now."""

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from learner_makers import policy

from global_learner.registry.registry import Registry
from global_learner.registry.signing import Signing
from policy_net.errors import IdentityFileError, VersionRejected
from policy_net.exchange.fleet_trust import TRUST_FILE, FleetTrust
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.signed_documents import KeyRole, SignedDocument
from policy_net.exchange.wire import FetchedPolicy

HOUR_SECONDS = 3600.0


class Root:
    """A learner above: its registry with v1, and its keys."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.signing = Signing(folder, HOUR_SECONDS, time.time)
        self.registry = Registry(folder, signing=self.signing)
        self.registry.publish(policy(), 0, 0.0, {}, 0.0, assign_all=False)

    def version(self, cluster: str = "east", assigned: int = 1) -> FetchedPolicy:
        card, data = self.registry.policy_bytes(1)
        return FetchedPolicy(
            1,
            data,
            card.digest,
            _document(card.signed),
            self.signing.timestamp(cluster, assigned, None),
            self.signing.keys.roots,
        )


def _document(data: bytes) -> SignedDocument:
    return SignedDocument.of(fleet_pb2.SignedDocument.FromString(data))


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    made = Root(tmp_path / "root")
    with closing(made.registry):
        yield made


def trust(folder: Path, now: float | None = None) -> FleetTrust:
    return FleetTrust(folder, "east", allow_unsigned=False, clock=time.time if now is None else lambda: now)


def test_what_the_fleet_signed_for_this_region_is_taken_and_its_key_is_pinned(root: Root, tmp_path: Path) -> None:
    first = trust(tmp_path)
    assert first.fleet == ""
    first.check(root.version())
    assert trust(tmp_path).fleet == root.signing.root.fleet
    root.signing.rotate(KeyRole.VERSION)
    root.registry.sign_versions()
    trust(tmp_path).check(root.version())


def test_anything_else_is_refused_in_one_line(root: Root, tmp_path: Path) -> None:
    good = root.version()
    other = Root(tmp_path / "other")
    with closing(other.registry):
        strange = other.version()
    cases = {
        "without a signed statement": replace(good, signed=None),
        "is of digest": replace(good, digest="0" * 64),
        "is cluster west's": root.version("west"),
        "assigns v2 to this cluster": root.version(assigned=2),
        "are those of fleet": strange,
    }
    pinned = trust(tmp_path)
    pinned.check(good)
    for says, version in cases.items():
        with pytest.raises(VersionRejected, match=says) as caught:
            trust(tmp_path).check(version)
        assert "\n" not in str(caught.value)
    with pytest.raises(VersionRejected, match="expired"):
        trust(tmp_path, time.time() + 2 * HOUR_SECONDS).check(root.version())


def test_an_old_answer_is_not_taken_after_a_newer_one(root: Root, tmp_path: Path) -> None:
    old = root.version()
    root.version(assigned=2)
    newer = root.version()
    trust(tmp_path).check(newer)
    with pytest.raises(VersionRejected, match="an old answer"):
        trust(tmp_path).check(old)


def test_enrolling_with_another_fleet_trusts_that_one(root: Root, tmp_path: Path) -> None:
    trust(tmp_path).check(root.version())
    other = Root(tmp_path / "other")
    with closing(other.registry):
        again = trust(tmp_path)
        again.on_enrolled(other.signing.keys.roots)
        assert again.fleet == other.signing.root.fleet
        trust(tmp_path).check(other.version())


def test_a_damaged_file_stops_the_start(root: Root, tmp_path: Path) -> None:
    trust(tmp_path).check(root.version())
    (tmp_path / TRUST_FILE).write_text("{}")
    with pytest.raises(IdentityFileError, match="move it away"):
        trust(tmp_path)
