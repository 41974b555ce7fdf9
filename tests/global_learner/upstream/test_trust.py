"""Which versions of the learner above a region takes: those that its fleet signed for this region and now."""

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from learner_makers import SPEC, policy

from global_learner.errors import ParentRefused, StateUnusable
from global_learner.registry.registry import Registry
from global_learner.registry.signing import Signing
from global_learner.upstream.messages import VersionAbove
from global_learner.upstream.trust import TRUST_FILE, TrustAbove
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.signed_documents import Role, SignedDocument

HOUR_SECONDS = 3600.0


class Root:
    """A learner above: its registry with v1, and its keys."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.signing = Signing(folder, HOUR_SECONDS, time.time)
        self.registry = Registry(folder, signing=self.signing)
        self.registry.publish(policy(), 0, 0.0, {}, 0.0, assign_all=False)

    def version(self, cluster: str = "east", assigned: int = 1) -> VersionAbove:
        card, data = self.registry.policy_bytes(1)
        return VersionAbove(
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


def trust(folder: Path, now: float | None = None) -> TrustAbove:
    return TrustAbove(folder, "east", time.time if now is None else lambda: now)


def test_what_the_fleet_signed_for_this_region_is_taken_and_its_key_is_pinned(root: Root, tmp_path: Path) -> None:
    first = trust(tmp_path)
    assert first.fleet == ""
    first.check(root.version(), SPEC.digest)
    assert trust(tmp_path).fleet == root.signing.root.fleet
    root.signing.rotate(Role.VERSION)
    root.registry.sign_versions()
    trust(tmp_path).check(root.version(), SPEC.digest)


def test_anything_else_is_refused_in_one_line(root: Root, tmp_path: Path) -> None:
    good = root.version()
    other = Root(tmp_path / "other")
    with closing(other.registry):
        strange = other.version()
    cases = {
        "without a signature": replace(good, signed=None),
        "with another content": replace(good, data=good.data + b"x"),
        "assigns v1 to west": root.version("west"),
        "assigns v2 to east": root.version(assigned=2),
        "are those of fleet": strange,
    }
    pinned = trust(tmp_path)
    pinned.check(good, SPEC.digest)
    for says, version in cases.items():
        with pytest.raises(ParentRefused, match=says) as caught:
            trust(tmp_path).check(version, SPEC.digest)
        assert "\n" not in str(caught.value)
    with pytest.raises(ParentRefused, match="it is of spec"):
        trust(tmp_path).check(root.version(), "0" * 64)
    with pytest.raises(ParentRefused, match="expired"):
        trust(tmp_path, time.time() + 2 * HOUR_SECONDS).check(root.version(), SPEC.digest)


def test_an_old_answer_is_not_taken_after_a_newer_one(root: Root, tmp_path: Path) -> None:
    old = root.version()
    root.version(assigned=2)
    newer = root.version()
    trust(tmp_path).check(newer, SPEC.digest)
    with pytest.raises(ParentRefused, match="an old one"):
        trust(tmp_path).check(old, SPEC.digest)


def test_enrolling_with_another_fleet_trusts_that_one(root: Root, tmp_path: Path) -> None:
    trust(tmp_path).check(root.version(), SPEC.digest)
    other = Root(tmp_path / "other")
    with closing(other.registry):
        again = trust(tmp_path)
        again.on_enrolled(other.signing.keys.roots)
        assert again.fleet == other.signing.root.fleet
        trust(tmp_path).check(other.version(), SPEC.digest)


def test_a_damaged_file_stops_the_start(root: Root, tmp_path: Path) -> None:
    trust(tmp_path).check(root.version(), SPEC.digest)
    (tmp_path / TRUST_FILE).write_text("{}")
    with pytest.raises(StateUnusable, match="move it away"):
        trust(tmp_path)
