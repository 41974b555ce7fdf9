"""Every answer that a learner can give an agent, with every bad value in it: used, or refused in one counted line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from agent_fakes import SPEC, STATUS, WEIGHTS, policy_bytes
from bad_fields import attacks
from hostile_server import FLEET, HostileServer, sound_replies

from cluster_agent.active_policy import CandidateFactory
from cluster_agent.fleet.learner_client import LearnerClient
from cluster_agent.fleet.policy_versions import checked_candidate
from cluster_agent.rollout.assignment_state import Evidence
from cluster_agent.settings import LearnerConnectionSettings, PolicySettings
from policy_net.errors import LearnerRefused, LearnerUnreachable, VersionRejected
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.policy_file import digest_of
from policy_net.exchange.wire import GradientUpdate, Registration, RoundAnswer

REGISTRATION = Registration(1, SPEC, 0, 2, True)
UPDATE = GradientUpdate("alpha", 1, 1, 0, SPEC.digest, WEIGHTS, 5, 5.0)


def _fetched(client: LearnerClient) -> Any:
    return checked_candidate(client.fetch_policy(2), SPEC, CandidateFactory(PolicySettings()))


CALLS: dict[str, Callable[[LearnerClient], Any]] = {
    "Register": lambda client: client.register("", ("vgg-16",)),
    "PullHead": lambda client: client.pull_head(REGISTRATION, None),
    "Push": lambda client: client.push(UPDATE, SPEC),
    "Heartbeat": lambda client: client.heartbeat(1, STATUS),
    "FetchPolicy": _fetched,
    "Poll": lambda client: client.poll(REGISTRATION),
    "Reply": lambda client: client.reply(REGISTRATION, RoundAnswer("t", WEIGHTS, 1)),
    "ShareBeliefs": lambda client: client.share_beliefs(REGISTRATION, 1, ()),
    "ShareSketch": lambda client: client.share_sketch(REGISTRATION, None),
    "ReturnPolicy": lambda client: client.return_policy(REGISTRATION, b"a policy file"),
    "ShareEvidence": lambda client: client.share_evidence(REGISTRATION, Evidence(1, (), None)),
}
"""How an agent makes each call, up to where it would use what comes back."""


@pytest.fixture
def server() -> Iterator[HostileServer]:
    server = HostileServer()
    yield server
    server.close()


class Caller:
    """A client, and what it counted."""

    def __init__(self, server: HostileServer, call_seconds: float = 60.0) -> None:
        settings = LearnerConnectionSettings.model_validate(
            {"address": f"127.0.0.1:{server.port}", "retry": {"call_seconds": call_seconds}}
        )
        self.counted: Counter[tuple[str, str]] = Counter()
        self.client = LearnerClient(settings, "alpha", self._count)

    def _count(self, method: str, outcome: str) -> None:
        self.counted[method, outcome] += 1


def test_every_call_of_an_agent_has_a_row() -> None:
    methods = {method.name for method in FLEET.methods}
    assert set(CALLS) | {"RenewCertificate"} == methods == set(sound_replies())  # certificates: test_enrollment


def test_sound_answers_are_used(server: HostileServer) -> None:
    caller = Caller(server)
    for call in CALLS.values():
        call(caller.client)
    assert {outcome for _, outcome in caller.counted} == {"ok"}


@pytest.mark.parametrize("method", CALLS)
def test_a_bad_value_in_an_answer_is_used_or_refused(method: str, server: HostileServer) -> None:
    wrong = []
    refused = 0
    for attack in attacks(sound_replies()[method]):
        server.answers = {method: attack.message.SerializeToString()}
        caller = Caller(server)
        try:
            CALLS[method](caller.client)
        except (LearnerRefused, VersionRejected) as error:
            refused += 1
            if not str(error).isprintable() or len(str(error)) > 700:
                wrong.append(f"{attack.label}: said {str(error)[:200]!r}")
            if isinstance(error, LearnerRefused) and not caller.counted[method, "unusable"]:
                wrong.append(f"{attack.label}: refused and counted {dict(caller.counted)}")
        except Exception as error:
            wrong.append(f"{attack.label}: {type(error).__name__}: {error}")
        finally:
            caller.client.close()
    assert not wrong, f"{method}:\n" + "\n".join(wrong)
    assert refused or method in ("Heartbeat", "Reply", "ShareBeliefs", "ShareEvidence", "ShareSketch", "ReturnPolicy")


@pytest.mark.parametrize("method", CALLS)
def test_bytes_that_are_no_answer_are_an_unreachable_learner(method: str, server: HostileServer) -> None:
    whole = sound_replies()[method].SerializeToString()
    for data in (b"\xff\xff\xff", whole[: len(whole) // 2] + b"\xff", b"\x0a\xff\xff\xff\xff\x7f", b"\x0b" * 3000):
        server.answers = {method: data}
        caller = Caller(server)
        with pytest.raises((LearnerUnreachable, LearnerRefused)) as caught:
            CALLS[method](caller.client)
        assert str(caught.value).isprintable()
        caller.client.close()


def weights(**changes: float) -> bytes:
    values = WEIGHTS.copy()
    for place, value in changes.items():
        values[int(place.removeprefix("at"))] = value
    return values.tobytes()


HEADS: dict[str, tuple[pb.PullHeadReply, str]] = {
    "nan": (pb.PullHeadReply(step=9, weights=weights(at0=np.nan), spec_digest=SPEC.digest), "NaN or infinity"),
    "infinite": (pb.PullHeadReply(step=9, weights=weights(at3=np.inf), spec_digest=SPEC.digest), "NaN or infinity"),
    "float64": (
        pb.PullHeadReply(step=9, weights=WEIGHTS.astype("<f8").tobytes(), spec_digest=SPEC.digest),
        "bytes, the spec",
    ),
    "short": (pb.PullHeadReply(step=9, weights=WEIGHTS.tobytes()[:-1], spec_digest=SPEC.digest), "bytes, the spec"),
    "none": (pb.PullHeadReply(step=9, spec_digest=SPEC.digest), "bytes, the spec"),
    "other-spec": (pb.PullHeadReply(step=9, weights=weights(), spec_digest="0" * 64), "is of spec"),
    "gone-back": (pb.PullHeadReply(step=6, weights=weights(), spec_digest=SPEC.digest), "went back from step 8 to 6"),
}


@pytest.mark.parametrize("case", HEADS)
def test_a_head_that_cannot_be_learned_from_is_refused(case: str, server: HostileServer) -> None:
    reply, says = HEADS[case]
    caller = Caller(server)
    assert caller.client.push(UPDATE, SPEC).head_step == 8
    server.answers = {"PullHead": reply.SerializeToString()}
    with pytest.raises(LearnerRefused, match=says):
        caller.client.pull_head(REGISTRATION, None)
    assert caller.counted["PullHead", "unusable"] == 1


def test_a_new_registration_begins_with_whatever_head_there_is(server: HostileServer) -> None:
    caller = Caller(server)
    caller.client.push(UPDATE, SPEC)
    server.answers = {
        "PullHead": pb.PullHeadReply(step=3, weights=weights(), spec_digest=SPEC.digest).SerializeToString()
    }
    again = Registration(2, SPEC, 3, 2, True)
    head = caller.client.pull_head(again, None)
    assert head is not None
    assert head.step == 3


VERSIONS: dict[str, bytes] = {
    "cut": policy_bytes()[:-7],
    "empty": b"",
    "text": b"no policy",
    "header-only": policy_bytes()[:200],
    "huge-header": (2**62).to_bytes(8, "little") + b"{}",
    "deep": (200_000).to_bytes(8, "little") + b"[" * 200_000,
}


@pytest.mark.parametrize("case", VERSIONS)
def test_a_version_that_is_no_policy_is_rejected_though_its_digest_is_right(case: str, server: HostileServer) -> None:
    data = VERSIONS[case]
    reply = pb.FetchPolicyReply(version=2, policy_file=data, digest=digest_of(data))
    server.answers = {"FetchPolicy": reply.SerializeToString()}
    with pytest.raises(VersionRejected) as caught:
        _fetched(Caller(server).client)
    assert str(caught.value).isprintable()


def test_a_version_that_was_not_asked_for_is_refused(server: HostileServer) -> None:
    file = policy_bytes()
    reply = pb.FetchPolicyReply(version=3, policy_file=file, digest=digest_of(file))
    server.answers = {"FetchPolicy": reply.SerializeToString()}
    with pytest.raises(LearnerRefused, match="sent v3 where v2 was asked for"):
        _fetched(Caller(server).client)


@pytest.mark.parametrize("method", CALLS)
def test_a_learner_that_hangs_is_left_at_the_deadline(method: str, server: HostileServer) -> None:
    server.answers = {method: server.hang}
    caller = Caller(server, call_seconds=0.2)
    with pytest.raises(LearnerUnreachable):
        CALLS[method](caller.client)
    assert caller.counted[method, "deadline_exceeded"] == 1


def test_an_answer_larger_than_any_policy_is_not_taken(server: HostileServer) -> None:
    server.answers = {"PullHead": b"\x00" * (257 << 20)}
    with pytest.raises(LearnerUnreachable, match="larger than max"):
        Caller(server).client.pull_head(REGISTRATION, None)


def test_a_compressed_answer_is_not_unpacked() -> None:
    server = HostileServer(grpc.Compression.Gzip)
    try:
        server.answers = {"PullHead": b"\x00" * (200 << 20)}
        with pytest.raises((LearnerRefused, LearnerUnreachable)):
            Caller(server).client.pull_head(REGISTRATION, None)
    finally:
        server.close()
