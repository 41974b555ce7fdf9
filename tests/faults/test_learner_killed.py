"""kill -9 of the learner in mid-run, again and again: nothing acknowledged is lost, nothing is applied twice.

Four clusters push without pause through the real process while it is killed and started again. A push without an answer
is offered again, as it was, until it is answered. In the end the log is counted: every acknowledged update is there,
once; and the weights are what the log's updates make of v1, one after the other.
"""

import os
import random
import threading
import time
from pathlib import Path

import grpc
import numpy as np
import pytest
from learner_makers import SPEC, policy, vector
from learner_process import DEADLINE_SECONDS, LearnerProcess

from global_learner.aggregation.base import apply_adam
from global_learner.storage.receipts import Receipt, audit, read_receipts
from global_learner.storage.snapshot import AdamState
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.policy_file import parse_policy_file
from policy_net.exchange.spec import Weights, weights_from_bytes
from policy_net.exchange.wire import GradientUpdate, push_request
from policy_net.learning.adam import AdamConstants

CLUSTERS = ("north", "south", "east", "west")
KILLS = int(os.environ.get("FEDL2_KILLS", "50"))
"""`make soak` kills it a thousand times.

A life ends at a random moment, so that starts, snapshots and cuts are hit too.
"""
UPDATES_PER_LIFE = 20
PUBLISH_EVERY = 40
_MOMENTARY = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


def gradient_of(cluster: str, sequence: int) -> Weights:
    """Recomputed when the log is checked, so that a swapped or altered gradient is found."""
    return vector(CLUSTERS.index(cluster) * 1_000_000 + sequence)


class Pusher:
    """One cluster: pushes until stopped, offering each update until it is answered."""

    def __init__(self, learner: LearnerProcess, cluster: str, stop: threading.Event) -> None:
        self.cluster = cluster
        self.acknowledged: dict[int, int] = {}
        self.offered_again = self.duplicates = 0
        self.error: BaseException | None = None
        self._channel = learner.channel()
        self._fleet = rpc.FleetStub(self._channel)
        self._stop = stop
        self.thread = threading.Thread(target=self._run, name=cluster)

    def _call(self, method, request):
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                return method(request, timeout=5.0, wait_for_ready=True)
            except grpc.RpcError as error:
                if error.code() not in _MOMENTARY or time.monotonic() > deadline:
                    raise
                self.offered_again += 1

    def _run(self) -> None:
        try:
            self._push_on()
        except BaseException as error:
            self.error = error
        finally:
            self._channel.close()

    def _push_on(self) -> None:
        self.incarnation = self._call(self._fleet.Register, pb.RegisterRequest(cluster=self.cluster)).incarnation
        base = self._pull()
        sequence = 0
        while not self._stop.is_set():
            sequence += 1
            gradient = gradient_of(self.cluster, sequence)
            update = GradientUpdate(
                self.cluster, self.incarnation, sequence, base, SPEC.digest, gradient, 8, 8.0, replayed=True
            )
            reply = self._call(self._fleet.Push, push_request(update, want_weights=False))
            assert reply.outcome != pb.PushReply.REJECTED, reply.reason
            self.duplicates += reply.outcome == pb.PushReply.DUPLICATE
            assert reply.head_step > base - 1, "an acknowledged head went backwards"
            base = reply.head_step
            self.acknowledged[sequence] = reply.head_step

    def _pull(self) -> int:
        return self._call(
            self._fleet.PullHead, pb.PullHeadRequest(cluster=self.cluster, incarnation=self.incarnation)
        ).step


@pytest.mark.timeout(300 + 10 * KILLS)
@pytest.mark.heavy
def test_no_acknowledged_update_is_lost_or_applied_twice(tmp_path: Path) -> None:
    rng = random.Random(20)
    learner = LearnerProcess(
        tmp_path,
        # Small figures, so that kills hit snapshots, cuts and publications too; stale updates are not this test's.
        durability={"snapshot_every_steps": 50},
        publish={"every_steps": PUBLISH_EVERY, "keep_versions": 0, "average_decay": 0.0},
        ingest={"max_staleness_steps": 100_000},
        telemetry={"http_listen": None, "log_level": "warning"},
    )
    learner.start()
    stop = threading.Event()
    pushers = [Pusher(learner, cluster, stop) for cluster in CLUSTERS]
    try:
        for pusher in pushers:
            pusher.thread.start()
        for _ in range(KILLS):
            wait_for_updates(pushers, acknowledged(pushers) + rng.randrange(2 * UPDATES_PER_LIFE))
            learner.kill()
            learner.start()
        wait_for_updates(pushers, acknowledged(pushers) + UPDATES_PER_LIFE)
        learner.kill()
        learner.start()
        stop.set()
        for pusher in pushers:
            pusher.thread.join(DEADLINE_SECONDS)
            assert not pusher.thread.is_alive()
            assert pusher.error is None, pusher.error
        fleet = all_published(learner)
        head = head_weights(learner)
        versions = published_weights(learner, fleet.latest_version)
        assert learner.end() == 0
    finally:
        stop.set()
        learner.close()

    receipts = list(read_receipts(learner.state_dir, SPEC.digest))
    reported = figures(receipts, pushers)
    print(reported)
    counts = audit(iter(receipts))
    assert reported["lost"] == reported["doubled"] == reported["reordered"] == 0
    for pusher in pushers:
        assert counts[pusher.cluster, pusher.incarnation] == len(pusher.acknowledged)
    assert len(receipts) == fleet.head_step == fleet.updates_accepted
    assert {view.cluster: view.updates_accepted for view in fleet.clusters} == {
        pusher.cluster: len(pusher.acknowledged) for pusher in pushers
    }
    assert sum(pusher.offered_again for pusher in pushers) > 0, "no push was ever interrupted: the kills came too late"

    state = AdamState.start(policy().weights)
    expected = {0: state.weights.copy()}
    for receipt in receipts:
        apply_adam(state, gradient_of(receipt.cluster, receipt.sequence), receipt.learning_rate, AdamConstants())
        if receipt.step % PUBLISH_EVERY == 0:
            expected[receipt.step] = state.weights.copy()
    assert head.tobytes() == state.weights.tobytes()
    assert sorted(versions) == sorted(expected)
    for step, weights in versions.items():
        assert np.array_equal(weights, expected[step])


def figures(receipts: list[Receipt], pushers: list[Pusher]) -> dict[str, int]:
    """What became of every acknowledged update, by what the log and its receipts say."""
    steps: dict[tuple[str, int], list[int]] = {}
    for receipt in receipts:
        steps.setdefault((receipt.cluster, receipt.sequence), []).append(receipt.step)
    reported = [
        (pusher.cluster, sequence, head) for pusher in pushers for sequence, head in pusher.acknowledged.items()
    ]
    found = [(steps.get((cluster, sequence), []), head) for cluster, sequence, head in reported]
    late = sum(bool(at) and at[0] > head for at, head in found)
    backwards = sum(
        steps.get((cluster, sequence), [0])[-1] < steps.get((cluster, sequence - 1), [0])[0]
        for cluster, sequence, _ in reported
    )
    return {
        "kills": KILLS + 1,
        "acknowledged": len(reported),
        "lost": sum(not at for at, _ in found),
        "doubled": sum(len(at) > 1 for at in steps.values()),
        "reordered": late + backwards,
        "offered again": sum(pusher.offered_again for pusher in pushers),
        "answered duplicate": sum(pusher.duplicates for pusher in pushers),
    }


def acknowledged(pushers: list[Pusher]) -> int:
    return sum(len(pusher.acknowledged) for pusher in pushers)


def wait_for_updates(pushers: list[Pusher], count: int) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while acknowledged(pushers) < count:
        assert all(pusher.error is None for pusher in pushers), [pusher.error for pusher in pushers]
        assert time.monotonic() < deadline, "the fleet does not get on"
        time.sleep(0.005)


def all_published(learner: LearnerProcess) -> pb.GetFleetReply:
    """The fleet once every version that is due is there: they are made behind the updates."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (fleet := learner.fleet()).latest_version < 1 + fleet.head_step // PUBLISH_EVERY:
        assert time.monotonic() < deadline, "a version is missing"
        time.sleep(0.005)
    return fleet


def head_weights(learner: LearnerProcess) -> Weights:
    with learner.channel() as channel:
        fleet = rpc.FleetStub(channel)
        incarnation = fleet.Register(pb.RegisterRequest(cluster="reader"), timeout=60).incarnation
        reply = fleet.PullHead(pb.PullHeadRequest(cluster="reader", incarnation=incarnation), timeout=60)
        return weights_from_bytes(reply.weights, SPEC)


def published_weights(learner: LearnerProcess, newest: int) -> dict[int, Weights]:
    with learner.operators() as channel:
        fleet, admin = rpc.FleetStub(channel), rpc.AdminStub(channel)
        cards = admin.ListVersions(pb.ListVersionsRequest(), timeout=60).versions
        assert [card.version for card in cards] == list(range(1, newest + 1))
        files = {
            card.head_step: fleet.FetchPolicy(pb.FetchPolicyRequest(version=card.version), timeout=60).policy_file
            for card in cards
        }
    return {step: parse_policy_file(data, "version").weights for step, data in files.items()}
