"""Every method under every wrong identity: refused, counted by reason, and nothing changes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives import serialization
from hostile_learner import CALL_SECONDS, HostileLearner
from rpc_table import GOOD_CLUSTER, ROWS, Caller, methods, sound_request

from global_learner.enrollment.authority import DAY_SECONDS, Authority, open_authority, read_authority
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.identity_file import IdentityFile, new_key, parse_identity

pytestmark = pytest.mark.heavy

GUARDED = [method for method, row in ROWS.items() if row.caller is not Caller.NOBODY]
HANDSHAKE = "handshake"
"""In a reason's place: the connection never comes about, and no call is made of it."""


def certified(authority: Authority, name: str, trusted: bytes, now: float, lifetime_seconds: float) -> IdentityFile:
    """An identity that an authority signed, whether anybody knows it or not."""
    key = new_key()
    public = serialization.load_pem_private_key(key, None).public_key()
    issued = authority.for_client(public, name, now, lifetime_seconds)  # type: ignore[arg-type]  # new_key makes P-256
    return parse_identity(key + issued.pem + trusted)


class Impostors:
    """Identities that are not good, or not for what is asked."""

    def __init__(self, learner: HostileLearner, folder: Path) -> None:
        now = time.time()
        state = learner.process.state_dir / "identity"
        own = read_authority(state / "ca.pem", state / "ca.key", now)
        other = open_authority(folder, now)
        trusted = learner.admin.authority
        revoked = learner.enrolled("revoked")
        learner.administrator().RevokeCluster(pb.RevokeClusterRequest(cluster="revoked"), timeout=CALL_SECONDS)
        replaced = learner.enrolled("replaced")
        learner.enrolled("replaced")
        self.identities: dict[str, tuple[IdentityFile | None, str]] = {
            "none": (None, HANDSHAKE),
            "of-another-authority": (certified(other, GOOD_CLUSTER, trusted, now, DAY_SECONDS), HANDSHAKE),
            "admin-of-another-authority": (certified(other, "policyctl", trusted, now, DAY_SECONDS), HANDSHAKE),
            "expired": (certified(own, GOOD_CLUSTER, trusted, now - 2 * DAY_SECONDS, DAY_SECONDS), HANDSHAKE),
            "signed-but-unknown": (certified(own, GOOD_CLUSTER, trusted, now, DAY_SECONDS), "unknown-certificate"),
            "admin-but-unknown": (certified(own, "policyctl", trusted, now, DAY_SECONDS), "unknown-certificate"),
            "nameless": (certified(own, "x" * 60, trusted, now, DAY_SECONDS), "unknown-certificate"),
            "revoked": (revoked, "revoked"),
            "replaced": (replaced, "revoked"),
            "another-cluster": (learner.enrolled("south"), "wrong-name"),
            "admin-for-cluster": (learner.admin, "wrong-role"),
            "cluster-for-admin": (learner.north, "wrong-role"),
        }


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileLearner]:
    learner = HostileLearner(tmp_path_factory.mktemp("callers"))
    yield learner
    learner.close()


@pytest.fixture(scope="module")
def impostors(learner: HostileLearner, tmp_path_factory: pytest.TempPathFactory) -> Impostors:
    return Impostors(learner, tmp_path_factory.mktemp("authority"))


@pytest.mark.parametrize("method", GUARDED)
def test_a_wrong_identity_gets_nowhere(method: str, learner: HostileLearner, impostors: Impostors) -> None:
    row = ROWS[method]
    wrong = []
    shown, counted = learner.shown(), learner.counted()
    for label, (identity, reason) in impostors.identities.items():
        expected = reason
        if label == "another-cluster" and row.caller is Caller.ADMIN:
            expected = "wrong-role"
        if (label, row.caller) in (("admin-for-cluster", Caller.ADMIN), ("cluster-for-admin", Caller.CLUSTER)):
            continue  # these are the right ones
        if label in ("cluster-for-admin", "admin-for-cluster") and row.caller is Caller.EITHER:
            continue
        answer = learner.send(method, sound_request(method, learner.incarnation), learner.channel(identity))
        now, count = learner.shown(), learner.counted()
        counts = {key: number for key, number in (count - counted).items() if "refusals" in key[0]}
        if expected == HANDSHAKE:
            right = answer.status is grpc.StatusCode.UNAVAILABLE and not counts
        else:
            right = answer.status is grpc.StatusCode.PERMISSION_DENIED and counts == {
                ("fedl2_learner_refusals_total", method, "wrong-identity"): 1,
                ("fedl2_learner_identity_refusals_total", expected): 1,
            }
        if not right or now != shown or "Traceback" in answer.line:
            wrong.append(f"{label}: {answer.status.name} {answer.line!r}, counted {counts}")
        shown, counted = now, count
    assert not wrong, f"{method}:\n" + "\n".join(wrong)


@pytest.mark.parametrize("method", methods())
def test_plain_text_is_not_taken_where_certificates_are(method: str, learner: HostileLearner) -> None:
    for port in (learner.process.port, learner.enroll_port):
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            answer = learner.send(method, sound_request(method, 1), channel)
            assert answer.status is grpc.StatusCode.UNAVAILABLE


def test_the_enrollment_port_knows_no_other_method(learner: HostileLearner) -> None:
    for method in GUARDED:
        counted = learner.counted()
        answer = learner.send(method, sound_request(method, 1), learner.channel(None, enroll=True))
        assert answer.status is grpc.StatusCode.UNIMPLEMENTED
        key = ("fedl2_learner_refusals_total", "unknown", "unknown-method")
        assert learner.counted()[key] == counted[key] + 1


def test_a_token_is_good_once_and_for_its_name_alone(learner: HostileLearner) -> None:
    from policy_net.exchange.identity_file import signing_request

    admin = learner.administrator()
    token = admin.EnrollCluster(pb.EnrollClusterRequest(cluster="west"), timeout=CALL_SECONDS).token

    def enroll(cluster: str, token: str, key: bytes) -> str:
        request = pb.EnrollRequest(cluster=cluster, token=token, signing_request=signing_request(key, cluster))
        counted = learner.counted()
        answer = learner.send("Enroll", request)
        (reason,) = [key[1] for key in learner.counted() - counted if key[0] == "fedl2_learner_enrollments_total"]
        assert answer.done == (reason in ("enrolled", "repeated"))
        assert token not in answer.line
        return reason

    key = new_key()
    assert enroll("east", token, key) == "wrong-name"
    assert enroll("west", token + "x", key) == "unknown-token"
    assert enroll("west", token, key) == "enrolled"
    assert enroll("west", token, key) == "repeated"
    assert enroll("west", token, new_key()) == "used-token"
    assert token not in learner.process.log.read_text()
