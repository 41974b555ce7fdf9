"""When the agent enrolls and renews, by a clock of its own and with a learner that answers as it is told."""

from collections.abc import Callable
from pathlib import Path

import pytest
from agent_identity_makers import LIFE_SECONDS, NOON, certificate, enrolled, invite
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from cluster_agent.fleet.learner_client import address_of
from cluster_agent.settings import LearnerConnectionSettings
from policy_net.errors import CertificateRefused, LearnerRefused, LearnerUnreachable
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.identity_file import new_key
from policy_net.exchange.learner_connection import RENEWAL_PAUSE_SECONDS, LearnerConnection


class Learner:
    """Counts calls, and raises what it is told to."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.error: Exception | None = None

    def __call__(self, name: str, method: Callable[..., object], request: object) -> fleet_pb2.CertificateReply:
        self.calls.append(name)
        if self.error is not None:
            raise self.error
        # A certificate needs the private key to be signed with itself, so this learner never has a good one to give.
        asked = x509.load_der_x509_csr(request.signing_request)  # type: ignore[attr-defined]
        assert asked.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return fleet_pb2.CertificateReply(certificate=certificate(new_key()), authority=certificate(new_key()))


class World:
    def __init__(self, folder: Path, now: float) -> None:
        self.now = now
        self.learner = Learner()
        settings = LearnerConnectionSettings(address="127.0.0.1:9", enrollment_file=folder / "north.enrollment")
        address = address_of(settings, "north", folder / "identity")
        self.connection = LearnerConnection(address, self.learner, lambda: self.now)


def test_an_identity_is_left_alone_until_two_thirds_of_its_life(tmp_path: Path) -> None:
    enrolled(tmp_path)
    world = World(tmp_path, NOON + LIFE_SECONDS * 0.66)
    world.connection.fleet()
    assert world.learner.calls == []
    world.now = NOON + LIFE_SECONDS * 0.67
    world.connection.fleet()
    assert world.learner.calls == ["RenewCertificate"]


@pytest.mark.parametrize("error", [LearnerUnreachable("away"), LearnerRefused("no"), None])
def test_a_renewal_that_fails_holds_nothing_up_and_is_tried_again_after_a_pause(
    tmp_path: Path, error: Exception | None
) -> None:
    kept = enrolled(tmp_path).present
    world = World(tmp_path, NOON + LIFE_SECONDS * 0.7)
    world.learner.error = error
    for _ in range(5):
        world.connection.fleet()
    assert world.learner.calls == ["RenewCertificate"]
    world.now += RENEWAL_PAUSE_SECONDS
    world.connection.fleet()
    assert world.learner.calls == ["RenewCertificate"] * 2
    assert kept is not None
    assert world.connection.certificate_expires == kept.ends_unix_seconds


def test_a_clock_far_ahead_does_not_ask_with_every_call_and_says_what_may_be_wrong(tmp_path: Path) -> None:
    enrolled(tmp_path)
    world = World(tmp_path, NOON + 2 * LIFE_SECONDS)
    for _ in range(50):
        world.connection.fleet()
    assert len(world.learner.calls) == 1
    assert "has expired" in world.connection.advice
    world.now = NOON
    assert world.connection.advice == ""


def test_without_an_identity_an_absent_learner_is_asked_again_and_a_refused_token_is_not(tmp_path: Path) -> None:
    invite(tmp_path)
    world = World(tmp_path, NOON)
    world.learner.error = LearnerUnreachable("away")
    for _ in range(2):
        with pytest.raises(LearnerUnreachable):
            world.connection.fleet()
    assert world.learner.calls == ["Enroll", "Enroll"]
    world.learner.error = LearnerRefused("Enroll: PERMISSION_DENIED: used-token: ask for a new file")
    with pytest.raises(CertificateRefused) as refused:
        world.connection.fleet()
    said = "the learner refuses this enrollment file: used-token: ask for a new file"
    assert str(refused.value).partition(": ")[2] == said
    for _ in range(2):
        with pytest.raises(CertificateRefused):
            world.connection.fleet()
    assert world.learner.calls == ["Enroll"] * 3
    invite(tmp_path, "a newer token")
    with pytest.raises(LearnerRefused, match="used-token"):
        world.connection.fleet()
    assert world.learner.calls == ["Enroll"] * 4
