"""A fleet whose learners are killed, frozen, without disk or database, and what must hold all the while.

Agents talk to whichever learner answers, and make up what they found out; they do nothing unless a test lets them, so a
rollout stays where it is while something is done to its learner.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from learner_makers import update
from learner_process import DEADLINE_SECONDS, LearnerProcess
from places import ASKED, Place, content
from rollout_fleet import FakeAgent

from global_learner.storage.audit_chain import AuditLine, checked_chain
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.rollout_assignment import AssignmentRole
from policy_net.exchange.wire import push_request

CLUSTERS = 6
VERDICT = {"margin_percent": 50, "held_loss_percent": 100, "least_pairs": 1, "shadow_decisions": 5}
SECTIONS: dict[str, Any] = {
    "publish": {"every_steps": 1, "auto_assign": False},
    "rollouts": {"period_seconds": 0.05, "away_seconds": 2 * DEADLINE_SECONDS, "real_time_factor": 1e9},
    "telemetry": {"http_listen": None, "log_level": "warning"},
}
CALL_SECONDS = 3.0
MOMENTARY = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
"""Of a learner that ends, is frozen, is not the active one, cannot ask its database, or has no room."""
Told = tuple[int, int | None]
"""A version that acts, and one beside it."""


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class RestlessAgent(FakeAgent):
    """Asks one learner after the other until one answers; remembers all that it was told."""

    def __init__(self, cluster: str, channels: list[grpc.Channel]) -> None:
        super().__init__(cluster, channels[0])
        self._stubs = [rpc.FleetStub(channel) for channel in channels]
        self.ever: set[Told] = set()
        self.is_silent = False

    def now(self) -> Told:
        return self.acting, None if self.rollout_assignment is None else self.rollout_assignment.beside_version

    def is_answered(self) -> bool:
        """Whether some learner still says what to act on."""
        request = pb.HeartbeatRequest(cluster=self.cluster, incarnation=self.incarnation)
        codes = []
        for stub in self._stubs:
            try:
                self._obey(stub.Heartbeat(request, timeout=CALL_SECONDS))
            except grpc.RpcError as error:
                codes.append(error.code())
        assert set(codes) <= MOMENTARY, codes
        return len(codes) < len(self._stubs)

    def hear(self) -> None:
        """A heartbeat without evidence."""
        self.is_silent = True
        self.beat()
        self.is_silent = False

    def share(self) -> pb.ShareEvidenceReply | None:
        return None if self.is_silent else super().share()

    def _obey(self, reply: pb.RegisterReply | pb.HeartbeatReply) -> None:
        super()._obey(reply)
        self.ever.add(self.now())

    def call(self, name: str, request: Any) -> Any:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                return getattr(self._stubs[0], name)(request, timeout=CALL_SECONDS)
            except grpc.RpcError as error:
                if error.code() not in MOMENTARY or time.monotonic() > deadline:
                    raise
            self._stubs.append(self._stubs.pop(0))
            time.sleep(0.02)


class DisturbedFleet:
    """Learners with one state, and clusters."""

    def __init__(self, learners: list[LearnerProcess], channels: list[grpc.Channel]) -> None:
        self.learners = learners
        self.agents = [RestlessAgent(f"cluster-{number}", channels) for number in range(CLUSTERS)]
        for agent in self.agents:
            agent.register()
        first = self.agents[0]
        made = update(first.incarnation, cluster=first.cluster, incarnation=first.incarnation)
        first.call("Push", push_request(made, False))
        until(lambda: self.admin("GetFleet", pb.GetFleetRequest()).latest_version == 2, "v2 is published")

    def admin(self, name: str, request: Any, *, again: bool = True) -> Any:
        """Ask as an operator, whichever learner is the active one."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                with self.learners[0].operators() as channel:
                    return getattr(rpc.AdminStub(channel), name)(request, timeout=CALL_SECONDS)
            except grpc.RpcError as error:
                if not again or error.code() not in MOMENTARY or time.monotonic() > deadline:
                    raise
            time.sleep(0.02)

    def start(self) -> None:
        plan = json.dumps({"stages": content(), "verdict": VERDICT})
        self.admin("StartRollout", pb.StartRolloutRequest(version=2, plan_json=plan, reason="a test"))

    def act(self, action: str) -> None:
        self.admin("ActOnRollout", pb.ActOnRolloutRequest(action=action))

    def rollout(self) -> pb.Rollout:
        return self.admin("GetRollout", pb.GetRolloutRequest()).rollout

    def place(self) -> Place:
        found = self.rollout()
        return found.phase, found.stages[found.stage]

    def hear(self) -> None:
        """Heartbeats without evidence, of which no stage ends."""
        for agent in self.agents:
            agent.hear()

    def beat(self, here: Place | None = None) -> None:
        """Heartbeats, and then evidence of what everybody was asked, if the rollout stands where it is thought to.

        So no cluster brings evidence of a stage that was not seen yet, and none is passed unseen.
        """
        self.hear()
        if here is None or self.place() == here:
            for agent in self.agents:
                agent.share()

    def live(self, on_place: Callable[[Place], None], *, abort_in: str = "") -> Place:
        """Go on to the end, and tell of every place as it is reached; an operator promotes where it is asked."""
        reported: list[Place] = []
        deadline = time.monotonic() + 3 * DEADLINE_SECONDS
        while True:
            here = self.place()
            assert time.monotonic() < deadline, here
            if here == ("running", "gate"):
                continue  # it asks at once, as its learner replays nothing
            if here[0] == "asking" and here[1] not in ASKED:
                self.beat(here)  # the evidence was under way, or is now: it goes on by itself, at any moment
                continue
            if here not in reported:
                reported.append(here)
                on_place(here)
                # A shadow stage is over when its time is; without evidence an operator is asked.
                assert self.place() in (here, ("asking", here[1])), "where it stood it stands"
                self.check()
            if here[0] in ("done", "rolled-back"):
                self.beat()
                self.check(settled=True)
                return here
            if here == ("running", abort_in):
                self.hear()
                assert any(
                    agent.rollout_assignment is not None and agent.rollout_assignment.role is AssignmentRole.ALTERNATING
                    for agent in self.agents
                )
                self.act("abort")
            elif here[0] == "asking":
                self.act("promote")
            else:
                self.beat(here)

    def check(self, *, settled: bool = False) -> None:
        """The audit log is whole, says nothing twice, and all that anybody was ever told."""
        entries = self.admin("ListAudit", pb.ListAuditRequest()).entries
        decided: dict[str, list[Told]] = {agent.cluster: [(1, None)] for agent in self.agents}
        chains: dict[str, list[AuditLine]] = {}
        said: list[tuple[str, str, str]] = []
        for entry in entries:
            words = (entry.unix_seconds, entry.actor, entry.action, entry.subject, entry.detail)
            line = AuditLine(entry.log, entry.number, *words, entry.before, entry.digest)
            chains.setdefault(entry.log, []).append(line)
            if entry.action == "rollout-started":
                said = []
            if entry.action.startswith("rollout-"):
                said.append((entry.action, entry.subject, entry.detail))
            if entry.action == "rollout-assigned":
                found = re.fullmatch(r".* to v(\d+)(?: beside v(\d+))? \([a-z]+\)", entry.detail)
                assert found is not None, entry.detail
                decided[entry.subject].append((int(found[1]), None if found[2] is None else int(found[2])))
        for log, lines in chains.items():
            assert checked_chain(log, lines).misfit is None
        assert len(said) == len(set(said)), said
        for agent in self.agents:
            assert agent.ever <= set(decided[agent.cluster]), agent.cluster
            if settled:
                assert agent.now() == decided[agent.cluster][-1], agent.cluster


@contextmanager
def disturbed_fleet(learners: list[LearnerProcess]) -> Iterator[DisturbedFleet]:
    """The first learner active, the others waiting."""
    try:
        learners[0].start()
        for learner in learners[1:]:
            learner.begin()
        channels = [learner.channel() for learner in learners]
        yield DisturbedFleet(learners, channels)
        for channel in channels:
            channel.close()
    finally:
        for learner in learners:
            learner.close()
