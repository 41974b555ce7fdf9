"""Every way in which an update can be wrong, each with the one word for it; and what is replayed or overtaken."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hostile_learner import CALL_SECONDS, HostileLearner
from learner_makers import SPEC, update, vector

from global_learner.errors import FAULTY, Rejection
from global_learner.storage.receipts import audit, read_receipts
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.wire import push_request

pytestmark = pytest.mark.heavy


def changed(**changes: Any) -> np.ndarray:
    """A gradient with a few values changed."""
    gradient = vector(3)
    for place, value in changes.items():
        gradient[int(place.removeprefix("at"))] = value
    return gradient


WIRE: dict[str, tuple[dict[str, Any], Rejection]] = {
    "no gradient": ({"gradient": b""}, Rejection.WRONG_SHAPE),
    "one parameter less": ({"gradient": vector(1)[:-1].tobytes()}, Rejection.WRONG_SHAPE),
    "one parameter more": ({"gradient": vector(1).tobytes() + b"\x00" * 4}, Rejection.WRONG_SHAPE),
    "float64": ({"gradient": vector(1).astype("<f8").tobytes()}, Rejection.WRONG_SHAPE),
    "float16, whole floats": ({"gradient": vector(1)[:42].astype("<f2").tobytes()}, Rejection.WRONG_SHAPE),
    "another spec": ({"spec_digest": "0" * 64}, Rejection.WRONG_SPEC),
    "no spec": ({"spec_digest": ""}, Rejection.WRONG_SPEC),
    "a spec of megabytes": ({"spec_digest": "f" * 500_000}, Rejection.WRONG_SPEC),
    "NaN first": ({"gradient": changed(at0=np.nan).tobytes()}, Rejection.NOT_FINITE),
    "NaN last": ({"gradient": changed(at42=np.nan).tobytes()}, Rejection.NOT_FINITE),
    "a signalling NaN": ({"gradient": changed(at7=0).tobytes()[:-4] + b"\x01\x00\xa0\x7f"}, Rejection.NOT_FINITE),
    "infinity": ({"gradient": changed(at1=np.inf).tobytes()}, Rejection.NOT_FINITE),
    "infinities that cancel": ({"gradient": changed(at1=np.inf, at2=-np.inf).tobytes()}, Rejection.NOT_FINITE),
    "largest float": ({"gradient": changed(at1=3.4e38).tobytes()}, Rejection.NORM_TOO_LARGE),
    "squares that overflow": ({"gradient": np.full(43, 1e30, "<f4").tobytes()}, Rejection.NORM_TOO_LARGE),
    "big-endian": ({"gradient": vector(1).astype(">f4").tobytes()}, Rejection.NORM_TOO_LARGE),
    "just too large": ({"gradient": np.full(43, 1e3, "<f4").tobytes()}, Rejection.NORM_TOO_LARGE),
    "no samples": ({"samples": 0}, Rejection.BAD_SAMPLES),
    "samples beyond counting": ({"samples": 2**64 - 1}, Rejection.BAD_SAMPLES),
    "NaN effective": ({"effective_samples": math.nan}, Rejection.BAD_SAMPLES),
    "infinite effective": ({"effective_samples": math.inf}, Rejection.BAD_SAMPLES),
    "negative effective": ({"effective_samples": -1.0}, Rejection.BAD_SAMPLES),
    "ahead of the head": ({"base_step": 2**63}, Rejection.AHEAD_OF_HEAD),
    "sequence nought": ({"sequence": 0}, Rejection.BAD_SEQUENCE),
    "sequence beyond counting": ({"sequence": 2**64 - 1}, Rejection.BAD_SEQUENCE),
    "incarnation nought": ({"incarnation": 0}, Rejection.UNKNOWN_INCARNATION),
    "incarnation to come": ({"incarnation": 2**64 - 1}, Rejection.UNKNOWN_INCARNATION),
}


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileLearner]:
    learner = HostileLearner(tmp_path_factory.mktemp("push"), quarantine={"seconds": 0})
    yield learner
    learner.close()


def push(learner: HostileLearner, number: int, **changes: Any) -> pb.PushReply:
    request = push_request(update(number, incarnation=learner.incarnation), False)
    for name, value in changes.items():
        setattr(request, name, value)
    return learner.fleet(learner.north).Push(request, timeout=CALL_SECONDS)


@pytest.mark.parametrize("case", WIRE)
def test_a_wrong_update_is_rejected_with_its_word(case: str, learner: HostileLearner) -> None:
    changes, reason = WIRE[case]
    shown, counted = learner.shown(), learner.counted()
    reply = push(learner, 5, **changes)
    assert (reply.outcome, reply.reason) == (pb.PushReply.REJECTED, reason)
    more = learner.counted() - counted
    assert more["fedl2_learner_rejections_total", reason] == 1
    assert more["fedl2_learner_updates_total", "rejected"] == 1
    assert learner.shown() == shown


def test_every_reason_is_shown_or_belongs_to_a_mode() -> None:
    modes = {Rejection.ROUNDS_ONLY, Rejection.PRIVACY_SPENT, Rejection.NOT_NOISED, Rejection.LIVE_GRADIENT}
    elsewhere = {Rejection.TOO_STALE, Rejection.QUARANTINED, Rejection.HEAD_RESET} | modes
    assert {reason for _, reason in WIRE.values()} == set(Rejection) - elsewhere
    assert Rejection.QUARANTINED not in FAULTY


def test_denormal_and_nought_gradients_are_sound(learner: HostileLearner) -> None:
    learner.register()
    step = learner.shown()["head_step"]
    for sequence, value in enumerate((0.0, -0.0, 1e-45, -1e-45), start=1):
        gradient = np.full(SPEC.parameter_count, value, "<f4").tobytes()
        reply = push(learner, sequence, gradient=gradient, base_step=step + sequence - 1)
        assert reply.outcome == pb.PushReply.APPLIED
    fetched = learner.fleet(learner.north).PullHead(
        pb.PullHeadRequest(incarnation=learner.incarnation), timeout=CALL_SECONDS
    )
    assert np.isfinite(np.frombuffer(fetched.weights, "<f4")).all()


def test_what_is_replayed_counts_once_and_what_overtakes_counts(learner: HostileLearner) -> None:
    learner.register()
    step = learner.shown()["head_step"]
    outcomes = [push(learner, sequence).outcome for sequence in (3, 1, 3, 1, 2, 2, 3)]
    applied, duplicate = pb.PushReply.APPLIED, pb.PushReply.DUPLICATE
    assert outcomes == [applied, applied, duplicate, duplicate, applied, duplicate, duplicate]
    assert learner.shown()["head_step"] == step + 3
    old = learner.incarnation
    learner.register()
    assert push(learner, 4, incarnation=old).reason == Rejection.UNKNOWN_INCARNATION
    assert push(learner, 1).outcome == applied


def test_a_gradient_of_a_head_that_was_given_up_is_refused(learner: HostileLearner) -> None:
    learner.register()
    step = learner.shown()["head_step"]
    assert push(learner, 1, base_step=step).outcome == pb.PushReply.APPLIED
    learner.administrator().ResetHead(pb.ResetHeadRequest(version=1), timeout=CALL_SECONDS)
    assert push(learner, 2, base_step=step + 1).reason == Rejection.HEAD_RESET
    assert push(learner, 3, base_step=step + 2).outcome == pb.PushReply.APPLIED


def test_a_sequence_below_the_window_is_refused_rather_than_guessed_at(learner: HostileLearner) -> None:
    learner.register()
    step = learner.shown()["head_step"]
    assert push(learner, 5000, base_step=step).outcome == pb.PushReply.APPLIED
    assert push(learner, 3976, base_step=step).reason == Rejection.BAD_SEQUENCE
    assert push(learner, 3977, base_step=step).outcome == pb.PushReply.APPLIED


def test_after_all_that_a_killed_learner_comes_back_as_it_was(learner: HostileLearner) -> None:
    before = learner.shown()
    learner.process.kill()
    learner.start()
    after = learner.shown()
    assert after["head_step"] == before["head_step"]
    assert after["versions"] == before["versions"]
    assert learner.good_push().outcome == pb.PushReply.APPLIED
    assert learner.process.end() == 0
    counts = audit(read_receipts(learner.process.state_dir, SPEC.digest))
    assert counts.total() == before["updates_accepted"] + 1
