"""A fleet of agents over the wire that obey their assignments, and make up what they found out."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
from learner_makers import update
from learner_process import DEADLINE_SECONDS, LearnerProcess

from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.rollout_assignment import AssignmentRole, RolloutAssignment, candidate_acts
from policy_net.exchange.wire import push_request

TINY_PLAN = {
    "stages": [
        {"kind": "gate"},
        {"kind": "shadow", "hours": 1e-6},
        {"kind": "canary", "count": 2},
        {"kind": "fleet"},
    ],
    "verdict": {"margin_percent": 50, "least_pairs": 1, "shadow_decisions": 5},
}
BLOCKS_A_BEAT = 4


class FakeAgent:
    """One cluster: a heartbeat at a time, and evidence with each.

    Args:
        loss: of the candidate in this cluster, as a share of the jobs in the system.
    """

    def __init__(self, cluster: str, channel: grpc.Channel, loss: float = 0.0) -> None:
        self.cluster, self.loss = cluster, loss
        self.acting, self.rollout_assignment = 0, None
        self.reported: set[int] = set()
        self.incarnation = self.decisions = self.block = 0
        self._fleet = rpc.FleetStub(channel)

    def register(self) -> None:
        reply = self.call("Register", pb.RegisterRequest(cluster=self.cluster))
        self.incarnation = reply.incarnation
        self._obey(reply)

    def beat(self) -> None:
        status = pb.ClusterStatus(acting_version=self.acting, avg_jct_seconds=3600.0)
        if self.rollout_assignment is not None:
            status.rollout, status.rollout_role = self.rollout_assignment.rollout, self.rollout_assignment.role.value
            status.beside_version = self.rollout_assignment.beside_version
        request = pb.HeartbeatRequest(cluster=self.cluster, incarnation=self.incarnation, status=status)
        reply = self.call("Heartbeat", request)
        if reply.reregister:
            self.register()
            return
        self._obey(reply)
        self.share()

    def share(self) -> pb.ShareEvidenceReply | None:
        if self.rollout_assignment is None:
            return None
        request = pb.ShareEvidenceRequest(
            cluster=self.cluster, incarnation=self.incarnation, rollout=self.rollout_assignment.rollout
        )
        if self.rollout_assignment.role is AssignmentRole.SHADOW:
            self.decisions += 10
            request.shadow.CopyFrom(pb.ShadowSums(decisions=self.decisions, agreed=self.decisions))
        else:
            request.blocks.extend(self.made_up(self.block + number) for number in range(BLOCKS_A_BEAT))
        reply = self.call("ShareEvidence", request)
        self.block = reply.next_block
        return reply

    def made_up(self, number: int) -> pb.SwitchbackBlock:
        assert self.rollout_assignment is not None
        candidate = candidate_acts(self.rollout_assignment.seed, self.cluster, number)
        # The same load in both blocks of a pair: chance never makes a candidate look worse, however long a test takes.
        load = 1.0 + random.Random(f"{self.cluster} {number // 2}").uniform(-0.01, 0.01)
        jobs = 5.0 * load * (1.0 + self.loss * candidate)
        return pb.SwitchbackBlock(number=number, candidate=candidate, jobs=jobs, usual_jobs=5.0, decisions=10)

    def _obey(self, reply: pb.RegisterReply | pb.HeartbeatReply) -> None:
        self.rollout_assignment = RolloutAssignment.of(reply.duty) if reply.HasField("duty") else None
        self.acting = reply.assigned_version
        signed = json.loads(reply.timestamp.payload)
        assert signed["assigned_version"] == reply.assigned_version
        assert signed.get("duty") == (None if self.rollout_assignment is None else self.rollout_assignment.to_json())
        self.reported |= (
            {self.acting} if self.rollout_assignment is None else {self.acting, self.rollout_assignment.beside_version}
        )

    def call(self, name: str, request):  # type: ignore[no-untyped-def]
        return getattr(self._fleet, name)(request, timeout=DEADLINE_SECONDS, wait_for_ready=True)


class FakeFleet:
    """Agents of a learner's process, and its operators."""

    def __init__(self, learner: LearnerProcess, channel: grpc.Channel, count: int) -> None:
        self.learner = learner
        self.channel = channel
        self.agents = [FakeAgent(f"cluster-{number}", channel) for number in range(count)]
        for agent in self.agents:
            agent.register()

    def publish(self, version: int = 2) -> int:
        """The next version, out of an update."""
        agent = self.agents[0]
        sequence = agent.incarnation + version - 2
        request = push_request(update(sequence, cluster=agent.cluster, incarnation=agent.incarnation), False)
        rpc.FleetStub(self.channel).Push(request, timeout=DEADLINE_SECONDS)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (newest := self.learner.fleet().latest_version) < version:
            assert time.monotonic() < deadline
        return newest

    def admin(self, name: str, request):  # type: ignore[no-untyped-def]
        with self.learner.operators() as channel:
            return getattr(rpc.AdminStub(channel), name)(request, timeout=DEADLINE_SECONDS, wait_for_ready=True)

    def start(self, version: int, **changes) -> pb.StartRolloutReply:  # type: ignore[no-untyped-def]
        plan = json.dumps(TINY_PLAN | changes)
        return self.admin("StartRollout", pb.StartRolloutRequest(version=version, plan_json=plan, reason="a test"))

    def act(self, action: str, cluster: str = "") -> pb.ActOnRolloutReply:
        return self.admin("ActOnRollout", pb.ActOnRolloutRequest(action=action, cluster=cluster))

    def rollout(self, number: int = 0) -> pb.Rollout:
        return self.admin("GetRollout", pb.GetRolloutRequest(number=number)).rollout

    def audit(self) -> list[pb.AuditEntry]:
        return list(self.admin("ListAudit", pb.ListAuditRequest()).entries)

    def live_until(self, reached: Callable[[pb.Rollout], bool]) -> pb.Rollout:
        """Heartbeats and evidence until the rollout is somewhere."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not reached(rollout := self.rollout()):
            assert time.monotonic() < deadline, rollout
            for agent in self.agents:
                agent.beat()
        return rollout


@contextmanager
def living_fleet(learner: LearnerProcess, count: int = 4) -> Iterator[FakeFleet]:
    learner.start()
    try:
        with learner.channel() as channel:
            yield FakeFleet(learner, channel, count)
    finally:
        learner.close()
