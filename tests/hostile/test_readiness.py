"""Readiness of a real learner: 503 with a reason while it cannot serve, and 200 again after."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from hostile_learner import CALL_SECONDS, UNHURRIED, HostileLearner
from processes import wait_until
from rpc_table import methods

from policy_net.exchange.generated import fleet_pb2 as pb

pytestmark = pytest.mark.heavy


def readiness(learner: HostileLearner) -> tuple[int, str]:
    """The status of /readyz, and what it says."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{learner.process.http_port}/readyz", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_whoever_finds_no_room_makes_the_learner_unready_until_there_is_room_again(tmp_path: Path) -> None:
    learner = HostileLearner(
        tmp_path,
        ingest={"max_concurrent_requests": 1},
        calls={**UNHURRIED, "per_cluster": 1, "waiting_per_cluster": 1, "wait_seconds": 0.5, "arrival_seconds": 3600.0},
    )
    over = threading.Event()
    try:
        assert readiness(learner) == (200, "ready\n")
        other = learner.enrolled("south")
        incarnation = learner.fleet(other).Register(pb.RegisterRequest(), timeout=CALL_SECONDS).incarnation
        pull = pb.PullHeadRequest(cluster="south", incarnation=incarnation)

        # North's call has the only seat, and its message never comes.
        def nothing() -> Iterator[bytes]:
            over.wait()
            yield from ()

        path = methods()["Push"][0]
        held = learner.channel(learner.north).stream_unary(path).future(nothing(), timeout=3600.0)
        seated = 'fedl2_learner_lane_calls_count{lane="updates"} 1.0'
        page = f"http://127.0.0.1:{learner.process.http_port}/metrics"
        wait_until(lambda: seated in urllib.request.urlopen(page, timeout=60).read().decode(), "a seat is taken", 120.0)

        # North itself has had its share: that says nothing of the learner.
        with pytest.raises(grpc.RpcError):
            learner.good_push()
        assert readiness(learner) == (200, "ready\n")

        with pytest.raises(grpc.RpcError) as refused:
            learner.fleet(other).PullHead(pull, timeout=CALL_SECONDS)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert readiness(learner) == (503, "not ready: callers are refused for want of room: updates\n")

        over.set()
        held.cancel()
        wait_until(lambda: readiness(learner) == (200, "ready\n"), "the learner is ready again", 240.0)
        assert learner.fleet(other).PullHead(pull, timeout=CALL_SECONDS).weights
        assert learner.process.end() == 0
    finally:
        over.set()
        learner.close()
