"""The real learner whose files may grow no more, as on a full disk: killed amid it, and let go on."""

import resource
import urllib.error
import urllib.request
from pathlib import Path

import grpc
import numpy as np
import pytest
from learner_makers import update, vector
from learner_process import DEADLINE_SECONDS, LearnerProcess

from global_learner.storage.receipts import audit, read_receipts
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.spec import PolicySpec, weights_from_bytes
from policy_net.exchange.wire import push_request

SPEC = PolicySpec(jobs_per_batch=20, type_columns=4, hidden=(64,))
LIMIT_BYTES = 1 << 20
CALL_SECONDS = 60.0


def files_may_grow_to(learner: LearnerProcess, size_bytes: int) -> None:
    resource.prlimit(learner.pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))


class Cluster:
    """Pushes one update after the other, each as long as it takes."""

    def __init__(self, learner: LearnerProcess) -> None:
        self._fleet = rpc.FleetStub(learner.channel())
        self.acknowledged = 0
        self.incarnation = self._fleet.Register(
            pb.RegisterRequest(cluster="north"), timeout=CALL_SECONDS, wait_for_ready=True
        ).incarnation

    def push(self) -> grpc.RpcError | None:
        number = self.acknowledged + 1
        gradient = vector(number, SPEC)
        made = update(number, incarnation=self.incarnation, spec_digest=SPEC.digest, gradient=gradient)
        try:
            reply = self._fleet.Push(push_request(made, want_weights=False), timeout=CALL_SECONDS, wait_for_ready=True)
        except grpc.RpcError as error:
            return error
        assert reply.outcome in (pb.PushReply.APPLIED, pb.PushReply.DUPLICATE), reply.reason
        self.acknowledged += 1
        return None

    def push_until_refused(self) -> grpc.RpcError:
        for _ in range(1000):
            error = self.push()
            if error is not None:
                return error
        raise AssertionError("a thousand updates were taken: the limit does not hold")


def readiness(learner: LearnerProcess) -> tuple[int, str]:
    """The status of /readyz, and what it says."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{learner.http_port}/readyz", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


@pytest.mark.heavy
def test_pushes_are_refused_while_the_disk_is_full_and_none_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    learner = LearnerProcess(
        tmp_path,
        SPEC,
        ingest={"max_staleness_steps": 100_000},
        durability={"snapshot_every_steps": 60},
        publish={"every_steps": 1000},
        telemetry={"http_listen": "127.0.0.1:0", "log_level": "warning"},
    )
    try:
        learner.start()
        cluster = Cluster(learner)
        assert cluster.push() is None

        files_may_grow_to(learner, LIMIT_BYTES)
        refusal = cluster.push_until_refused()
        assert refusal.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "disk is full" in refusal.details()
        assert "\n" not in refusal.details()
        assert cluster.push() is not None  # and goes on refusing
        status, said = readiness(learner)
        assert (status, "disk is full" in said or "no room" in said) == (503, True), said
        fleet = learner.fleet()
        assert "no room" in fleet.disk_full
        assert fleet.head_step == cluster.acknowledged

        # Killed while it waits for room: what was acknowledged is there, what waited may be, once.
        learner.kill()
        learner.start()
        assert cluster.acknowledged <= learner.fleet().head_step <= cluster.acknowledged + 1
        before = cluster
        cluster = Cluster(learner)

        # The same again, but room returns: it goes on by itself, at the very update that waited.
        files_may_grow_to(learner, LIMIT_BYTES)
        cluster.push_until_refused()
        files_may_grow_to(learner, resource.RLIM_INFINITY)
        for _ in range(100):
            while (error := cluster.push()) is not None:
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert learner.fleet().disk_full == ""
        assert readiness(learner) == (200, "ready\n")
        pulled = rpc.FleetStub(learner.channel()).PullHead(
            pb.PullHeadRequest(cluster="north", incarnation=cluster.incarnation), timeout=DEADLINE_SECONDS
        )
        weights = weights_from_bytes(pulled.weights, SPEC).copy()
        assert learner.end() == 0
    finally:
        learner.close()
    counts = audit(read_receipts(learner.state_dir, SPEC.digest))
    assert before.acknowledged <= counts["north", before.incarnation] <= before.acknowledged + 1
    assert counts["north", cluster.incarnation] == cluster.acknowledged
    assert pulled.step == sum(counts.values())
    assert np.isfinite(weights).all()


@pytest.mark.heavy
def test_a_learner_starts_on_a_full_disk_tells_what_it_has_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    learner = LearnerProcess(
        tmp_path,
        SPEC,
        ingest={"max_staleness_steps": 100_000},
        durability={"snapshot_every_steps": 1000},
        publish={"every_steps": 20},
        telemetry={"http_listen": None, "log_level": "warning"},
    )
    try:
        learner.start()
        cluster = Cluster(learner)
        for _ in range(30):
            assert cluster.push() is None
        learner.kill()

        # Neither a snapshot nor a version finds room, but for the databases, which do not grow.
        learner.files_may_grow_to = 100_000
        learner.start()
        pulled = rpc.FleetStub(learner.channel()).PullHead(
            pb.PullHeadRequest(cluster="north", incarnation=cluster.incarnation),
            timeout=CALL_SECONDS,
            wait_for_ready=True,
        )
        assert pulled.step == 30
        fleet = learner.fleet()
        assert fleet.head_step == 30
        refusal = cluster.push_until_refused()
        assert refusal.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "disk is full" in refusal.details()
        taken = cluster.acknowledged

        files_may_grow_to(learner, resource.RLIM_INFINITY)
        for _ in range(20):
            while (error := cluster.push()) is not None:
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert cluster.acknowledged == taken + 20
        assert learner.end() == 0
    finally:
        learner.close()
    counts = audit(read_receipts(learner.state_dir, SPEC.digest))
    assert sum(counts.values()) == cluster.acknowledged
