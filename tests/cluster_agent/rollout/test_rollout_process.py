"""A real agent process that alternates, killed amid its blocks: what it reports is whole, and each block comes once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from agent_fakes import STATUS
from assignment_worlds import CLUSTER, SHIPPED, RolloutLearner, alternating
from processes import Fleet, made_again, wait_until

from cluster_agent.rollout.assignment_state import Evidence
from policy_net.exchange.generated import fleet_pb2, fleet_pb2_grpc
from policy_net.exchange.rollout_assignment import candidate_acts
from policy_net.exchange.wire import Registration

pytestmark = pytest.mark.heavy


class Wire(fleet_pb2_grpc.FleetServicer):
    """A `RolloutLearner` on the wire; one call at a time."""

    def __init__(self) -> None:
        self.learner = RolloutLearner()
        self.learner.expires = int(time.time()) + 86_400
        self.blocks: dict[int, fleet_pb2.SwitchbackBlock] = {}
        self.statuses: list[fleet_pb2.ClusterStatus] = []
        self.lock = threading.Lock()

    def Register(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        with self.lock:
            made: Registration = self.learner.register("", ())
            return fleet_pb2.RegisterReply(
                incarnation=made.incarnation,
                spec_json=SHIPPED.spec.to_json(),
                spec_digest=SHIPPED.spec.digest,
                assigned_version=self.learner.assigned,
                timestamp=self.learner.stamp().message(),
            )

    def Heartbeat(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        with self.lock:
            self.statuses.append(request.status)
            said = self.learner.heartbeat(request.incarnation, STATUS)
            assert said.timestamp is not None
            return fleet_pb2.HeartbeatReply(
                assigned_version=said.version,
                reregister=said.reregister,
                timestamp=said.timestamp.message(),
                duty=None if said.rollout_assignment is None else said.rollout_assignment.message(),
            )

    def FetchPolicy(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        with self.lock:
            found = self.learner.fetch_policy(request.version)
            assert found.signed is not None
            assert found.timestamp is not None
            return fleet_pb2.FetchPolicyReply(
                version=found.version,
                policy_file=found.data,
                digest=found.digest,
                signed=found.signed.message(),
                timestamp=found.timestamp.message(),
                roots=[root.message() for root in found.roots],
            )

    def ShareBeliefs(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        return fleet_pb2.ShareBeliefsReply(taken=True)

    def ShareEvidence(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        with self.lock:
            for block in request.blocks:
                known = self.blocks.setdefault(block.number, block)
                assert known == block, "a block that is told again is the same"
            self.learner.share_evidence(Registration(1, SHIPPED.spec, 0, 1, False), Evidence(request.rollout, (), None))
            return fleet_pb2.ShareEvidenceReply(taken=True, next_block=max(self.blocks, default=-1) + 1)

    def held(self) -> int:
        with self.lock:
            return len(self.blocks)


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[tuple[Wire, Fleet]]:
    fleet, service = Fleet(tmp_path), Wire()
    server = grpc.server(ThreadPoolExecutor(4))
    fleet_pb2_grpc.add_FleetServicer_to_server(service, server)
    fleet.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield service, fleet
    fleet.close()
    server.stop(0)


def test_an_agent_that_is_killed_amid_its_blocks_goes_on_and_reports_none_twice(wire: tuple[Wire, Fleet]) -> None:
    service, fleet = wire
    learning: dict[str, Any] = fleet.learning()
    learning["learner"]["twin_cpu_percent"] = 0.0  # blocks end here sooner than they can be replayed
    changes: dict[str, Any] = learning | {
        "backend": {
            "workloads": [{"source": "dl2:jobs=40,seed=3"}],
            "episodes": 1000,
            "environment": {"nodes": 8},
            "pace": {"kind": "scaled", "speedup": 1200.0 / 0.05},
            "baseline": False,
        },
        "policy": {},
        "learning": {"enabled": False},
    }
    agent = fleet.start_agent(CLUSTER, **changes)
    wait_until(lambda: any(status.acting_version == 1 for status in service.statuses), "v1 acts")
    service.learner.rollout_assignment = alternating()
    for _ in range(3):
        held = service.held()
        wait_until(lambda before=held: service.held() >= before + 2, "a pair of blocks")  # type: ignore[misc]
        agent.kill()
        agent = fleet.start_agent(CLUSTER, **changes)
    held = service.held()
    wait_until(lambda: service.held() >= held + 2, "a pair of blocks after the last kill")
    service.learner.rollout_assignment = None
    wait_until(lambda: service.statuses[-1].rollout == 0, "the assignment is over")
    wait_until(lambda: fleet.decisions(CLUSTER)[-1]["version"] == 1, "the incumbent acts")
    assert agent.stop() == 0, agent.output.read_text()[-2000:]
    for number, block in service.blocks.items():
        assert block.candidate == candidate_acts(5, CLUSTER, number)
        assert number ^ 1 in service.blocks, "blocks come in pairs"
        assert block.decisions > 0
        assert block.usual_jobs > 0.0
    lines = fleet.decisions(CLUSTER)
    turns = [line for line in lines if line.get("rollout") is not None]
    assert {line["version"] for line in turns} == {1, 2}
    for line in turns:
        assert (line["version"] == 2) == candidate_acts(5, CLUSTER, line["rollout"]["block"])
    made = made_again(fleet.folder / CLUSTER)
    assert (made["different"], made["beside"]["different"]) == (0, 0)
    assert made["beside"]["equal"] > 10
