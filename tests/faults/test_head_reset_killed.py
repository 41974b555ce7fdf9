"""kill -9 around `head reset` and `assign`: what was told is kept, what was not may be; never half of either."""

import random
import threading
import time
from pathlib import Path

import grpc
import pytest
from learner_makers import SPEC, policy
from learner_process import DEADLINE_SECONDS, LearnerProcess
from test_learner_killed import CLUSTERS, Pusher, gradient_of, head_weights, wait_for_updates

from global_learner.aggregation.base import apply_adam
from global_learner.registry.registry import Registry
from global_learner.storage.receipts import Receipt, read_receipts
from global_learner.storage.snapshot import AdamState
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.policy_file import parse_policy_file
from policy_net.exchange.spec import Weights
from policy_net.exchange.wire import GradientUpdate, push_request
from policy_net.learning.adam import AdamConstants

KILLS = 6
UPDATES_PER_LIFE = 60
PUBLISH_EVERY = 20


class ResetPusher(Pusher):
    """Goes on from the new head when it is told that the old one was given up."""

    refused = 0

    def _push_on(self) -> None:
        self.incarnation = self._call(self._fleet.Register, pb.RegisterRequest(cluster=self.cluster)).incarnation
        base, sequence = self._pull(), 0
        while not self._stop.is_set():
            sequence += 1
            gradient = gradient_of(self.cluster, sequence)
            update = GradientUpdate(
                self.cluster, self.incarnation, sequence, base, SPEC.digest, gradient, 8, 8.0, replayed=True
            )
            reply = self._call(self._fleet.Push, push_request(update, want_weights=False))
            assert reply.head_step >= base, "an acknowledged head went backwards"
            base = reply.head_step
            if reply.outcome == pb.PushReply.REJECTED:
                assert reply.reason == "head-reset"
                self.refused += 1
            else:
                self.acknowledged[sequence] = reply.head_step


def asked(learner: LearnerProcess, results: list, name: str, request) -> None:
    """Ask once; what was told, or None if nothing was."""
    with learner.operators() as channel:
        try:
            results.append(getattr(rpc.AdminStub(channel), name)(request, timeout=DEADLINE_SECONDS))
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                raise
            results.append(None)


@pytest.mark.heavy
def test_whenever_the_learner_is_killed_a_reset_is_whole_or_was_never(tmp_path: Path) -> None:
    learner = LearnerProcess(
        tmp_path,
        publish={"every_steps": PUBLISH_EVERY, "keep_versions": 0, "average_decay": 0.0},
        durability={"snapshot_every_steps": 33},
        ingest={"max_staleness_steps": 100_000},
        telemetry={"http_listen": None, "log_level": "warning"},
    )
    learner.start()
    stop = threading.Event()
    pushers = [ResetPusher(learner, cluster, stop) for cluster in CLUSTERS]
    reported: list = []
    try:
        for pusher in pushers:
            pusher.thread.start()
        kill_amid_commands(learner, pushers, reported)
        stop.set()
        for pusher in pushers:
            pusher.thread.join(DEADLINE_SECONDS)
            assert pusher.error is None, pusher.error
        head = head_weights(learner)
        with learner.operators() as channel:
            log = rpc.AdminStub(channel).ListAudit(pb.ListAuditRequest(), timeout=60).entries
        assert learner.end() == 0
    finally:
        stop.set()
        learner.close()

    receipts = list(read_receipts(learner.state_dir, SPEC.digest))
    resets = {receipt.step: receipt for receipt in receipts if receipt.kind == "reset"}
    for reply in reported:
        if reply is not None and reply.changed:
            assert reply.head_step in resets, "a reset that was told of is lost"
    details = [line.detail for line in log if line.action == "head-reset"]
    assert sorted(details) == sorted(
        f"from step {step - 1} to v{receipt.sequence}, now step {step}" for step, receipt in resets.items()
    ), "every reset is in the audit log, once"
    assert sum(pusher.refused for pusher in pushers) > 0, "no update was on its way during a reset"
    replayed, heads = replay(receipts)
    assert head.tobytes() == replayed.tobytes()
    assert published(learner.state_dir) == heads


def kill_amid_commands(learner: LearnerProcess, pushers: list[ResetPusher], reported: list) -> None:
    """Kill the learner again and again while it is asked to reset its head and to assign a version."""
    rng = random.Random(11)
    assigned: list = []
    for life in range(1, KILLS + 1):
        wait_for_updates(pushers, life * UPDATES_PER_LIFE)
        version = rng.randrange(1, learner.fleet().latest_version + 1)
        assignment = pb.AssignVersionRequest(version=version, clusters=["north"])
        commands = [
            threading.Thread(target=asked, args=(learner, reported, "ResetHead", pb.ResetHeadRequest(version=version))),
            threading.Thread(target=asked, args=(learner, assigned, "AssignVersion", assignment)),
        ]
        for command in commands:
            command.start()
        time.sleep(rng.choice((0.0, 0.002, 0.005, 0.01, 0.02, 0.05)))  # where the kill falls; any time is right
        learner.kill()
        for command in commands:
            command.join(DEADLINE_SECONDS)
        learner.start()
        if assigned[-1] is not None:
            (north,) = [view for view in learner.fleet().clusters if view.cluster == "north"]
            assert (north.assigned_version, north.held) == (version, True)
    wait_for_updates(pushers, (KILLS + 1) * UPDATES_PER_LIFE)
    asked(learner, reported, "ResetHead", pb.ResetHeadRequest(version=2))  # one at least, nobody kills this one
    assert reported[-1] is not None
    for pusher in pushers:  # of two more, one at most was on its way before: each has heard of the reset
        wait_for_updates([pusher], len(pusher.acknowledged) + 2)


def replay(receipts: list[Receipt]) -> tuple[Weights, dict[int, bytes]]:
    """The head and the versions (by step) that these records make of v1, computed here, not by the learner."""
    state = AdamState.start(policy().weights)
    kept, heads = {1: state.copy()}, {0: state.weights.tobytes()}
    reset_step = 0
    for receipt in receipts:
        if receipt.kind == "reset":
            past = kept[receipt.sequence]
            state = past.copy()
            state.idle_steps = receipt.step - (past.step - past.idle_steps)
            state.step = reset_step = receipt.step
            continue
        assert receipt.base_step >= reset_step, "an update of the head that was given up was applied"
        apply_adam(state, gradient_of(receipt.cluster, receipt.sequence), receipt.learning_rate, AdamConstants())
        if receipt.step % PUBLISH_EVERY == 0:
            kept[len(kept) + 1] = state.copy()
            heads[receipt.step] = state.weights.tobytes()
    return state.weights, heads


def published(state_dir: Path) -> dict[int, bytes]:
    """The versions' weights, by step; of a learner that has ended."""
    registry = Registry(state_dir)
    found = {
        card.head_step: parse_policy_file(registry.policy_bytes(card.version)[1], card.digest).weights.tobytes()
        for card in registry.versions()
    }
    registry.close()
    return found
