"""Callers that take as much as they can: what others and the owner still get, and what it costs the learner."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hostile_learner import CALL_SECONDS, HostileLearner
from processes import wait_until

from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.spec import PolicySpec

pytestmark = pytest.mark.heavy

LARGE = PolicySpec(hidden=(105, 105))
"""Heads of 0.4 MB: a few of them fill a connection."""
MEMORY_RATIO = 1.3
CLIENT = Path(__file__).with_name("stopped_client.py")


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileLearner]:
    learner = HostileLearner(tmp_path_factory.mktemp("greedy"), spec=LARGE)
    yield learner
    learner.close()


@contextmanager
def stopped_reader(learner: HostileLearner, name: str, calls: int, connections: int) -> Iterator[None]:
    """A cluster that asked for the head and is stopped."""
    identity = learner.enrolled(name)
    file = learner.process.folder / f"{name}.pem"
    identity.write(file)
    registered = learner.fleet(identity).Register(pb.RegisterRequest(), timeout=CALL_SECONDS)
    place = f"127.0.0.1:{learner.process.port}"
    numbers = (registered.incarnation, calls, connections)
    process = subprocess.Popen([sys.executable, str(CLIENT), place, str(file), name, *map(str, numbers)])
    try:
        state = Path(f"/proc/{process.pid}/stat")
        wait_until(lambda: state.read_text().rpartition(") ")[2][0] == "T", "the reader has stopped", CALL_SECONDS)
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("connections", [1, 20])
def test_a_stopped_reader_of_the_head_takes_nothing_from_others(connections: int, learner: HostileLearner) -> None:
    honest = learner.fleet(learner.north)
    pull = pb.PullHeadRequest(cluster="north", incarnation=learner.incarnation)
    honest.PullHead(pull, timeout=CALL_SECONDS)
    memory = learner.memory_bytes()
    with stopped_reader(learner, f"greedy-{connections}", calls=600, connections=connections):
        for _ in range(20):
            assert honest.PullHead(pull, timeout=CALL_SECONDS).weights
            beat = pb.HeartbeatRequest(incarnation=learner.incarnation, status=pb.ClusterStatus())
            assert not honest.Heartbeat(beat, timeout=CALL_SECONDS).reregister
        assert learner.memory_bytes() < MEMORY_RATIO * memory
        revoked = learner.administrator().RevokeCluster(
            pb.RevokeClusterRequest(cluster=f"greedy-{connections}"), timeout=CALL_SECONDS
        )
        assert revoked.certificates == 1
