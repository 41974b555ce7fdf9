"""A real learner, agents over the wire, and rollouts that come to the fleet or go back by themselves."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from learner_process import LearnerProcess
from rollout_fleet import TINY_PLAN, FakeFleet, living_fleet

from global_learner.report.content import report_content
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc

pytestmark = pytest.mark.heavy


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[FakeFleet]:
    learner = LearnerProcess(
        tmp_path,
        publish={"every_steps": 1, "auto_assign": False},
        rollouts={"period_seconds": 0.05, "real_time_factor": 1e9},
    )
    with living_fleet(learner) as living:
        living.publish()
        yield living


def asked(rollout: pb.Rollout) -> bool:
    return rollout.phase == "asking"


def over(rollout: pb.Rollout) -> bool:
    return rollout.phase in ("done", "rolled-back")


def lines(fleet: FakeFleet) -> Counter[tuple[str, str, str]]:
    return Counter(
        (entry.action, entry.subject, entry.detail) for entry in fleet.audit() if entry.action.startswith("rollout-")
    )


def test_a_version_that_is_no_worse_reaches_all_clusters(fleet: FakeFleet) -> None:
    fleet.start(2)
    assert "scores.enabled is off" in fleet.live_until(asked).verdicts[-1].reasons[0]
    assert {agent.acting for agent in fleet.agents} == {1}
    fleet.act("promote")
    canary = fleet.live_until(lambda rollout: rollout.stages[rollout.stage] == "canary" or over(rollout))
    assert Counter(member.role for member in canary.members) == {"alternating": 2, "incumbent": 2}
    done = fleet.live_until(over)
    assert (done.phase, done.stage) == ("done", 3)
    for agent in fleet.agents:
        agent.beat()
        assert (agent.acting, agent.rollout_assignment) == (2, None)
    found = lines(fleet)
    assert max(found.values()) == 1
    assert [action for action, _, _ in found if action == "rollout-done"] == ["rollout-done"]
    fleet.agents.append(type(fleet.agents[0])("new", fleet.channel))
    fleet.agents[-1].register()
    assert fleet.agents[-1].acting == 2  # what the latest rollout brought


def test_a_version_that_does_worse_goes_back_by_itself(fleet: FakeFleet) -> None:
    for agent in fleet.agents:
        agent.loss = 1.0
    # Of two canaries the first that is worse off by itself leaves too few, and an operator is asked.
    canary = {"kind": "canary", "count": 3}
    fleet.start(2, stages=[canary if stage["kind"] == "canary" else stage for stage in TINY_PLAN["stages"]])
    fleet.live_until(asked)
    fleet.act("promote")
    back = fleet.live_until(over)
    assert back.phase == "rolled-back"
    assert "failed in stage canary" in back.reason
    for agent in fleet.agents:
        agent.beat()
        assert (agent.acting, agent.rollout_assignment) == (1, None)
    assert sum(2 in agent.reported for agent in fleet.agents) == 4  # all shadowed it
    assert back.verdicts[-1].outcome == "fail"


def test_a_cluster_that_refuses_the_candidate_is_named_where_its_rollout_is_looked_at(fleet: FakeFleet) -> None:
    fleet.start(2)
    fleet.live_until(asked)
    fleet.act("promote")
    fleet.live_until(lambda rollout: rollout.stages[rollout.stage] == "shadow")
    refusing = fleet.agents[1]
    status = pb.ClusterStatus(acting_version=1, refused_version=2, refused_reason="expired")
    with fleet.learner.channel() as channel:
        beat = pb.HeartbeatRequest(cluster=refusing.cluster, incarnation=refusing.incarnation, status=status)
        rpc.FleetStub(channel).Heartbeat(beat, timeout=60)
    report = fleet.admin("GetReport", pb.GetReportRequest())
    for rollout in (fleet.rollout(), report.rollouts[0]):
        found = {member.cluster: member.refused_reason for member in rollout.members if member.refused_version == 2}
        assert found == {refusing.cluster: "expired"}
    attention = report_content(report)["attention"]
    assert f"{refusing.cluster}: refused v2: expired; look at its clock" in attention
    refusing.beat()
    assert not any(member.refused_version for member in fleet.rollout().members)


def test_one_cluster_that_lies_neither_passes_nor_fails_a_version(fleet: FakeFleet) -> None:
    fleet.start(2)
    fleet.live_until(asked)
    fleet.act("promote")
    canary = fleet.live_until(lambda rollout: rollout.stages[rollout.stage] == "canary")
    liar = next(member.cluster for member in canary.members if member.role == "alternating")
    next(agent for agent in fleet.agents if agent.cluster == liar).loss = 30.0
    found = fleet.live_until(lambda rollout: "held" in {member.role for member in rollout.members})
    # Of two canaries the other one alone cannot say that it lies: an operator is asked, and lets it go on.
    assert (found.phase, found.stages[found.stage]) in (("asking", "canary"), ("running", "fleet"))
    if found.phase == "asking":
        fleet.act("promote")
    done = fleet.live_until(over)
    assert done.phase == "done"
    assert next(member.role for member in done.members if member.cluster == liar) == "held"


def test_a_learner_that_is_killed_at_every_change_goes_on_where_it_was(fleet: FakeFleet) -> None:
    fleet.start(2)
    seen: list[tuple[str, int]] = []
    while not over(rollout := fleet.rollout()):
        place = (rollout.phase, rollout.stage)
        if place not in seen:
            seen.append(place)
            fleet.learner.kill()
            fleet.learner.start()
            rollout = fleet.rollout()
        if rollout.phase == "asking":
            fleet.act("promote")
        reached = (rollout.phase, rollout.stage)
        # A learner that starts again may find at once that it was the last stage.
        fleet.live_until(lambda now, before=reached: over(now) or (now.phase, now.stage) != before)
    assert rollout.phase == "done"
    # The last one may be over before somebody looks.
    assert {0, 1, 2} <= {stage for _, stage in seen} <= {0, 1, 2, 3}
    found = lines(fleet)
    assert max(found.values()) == 1, found
    assert sorted(subject for action, subject, _ in found if action == "rollout-stage") == ["rollout 1"] * 3
    assert {agent.reported <= {1, 2} for agent in fleet.agents} == {True}
    for agent in fleet.agents:
        agent.beat()
        assert agent.acting == 2


def test_a_cluster_that_is_assigned_by_hand_is_left_alone_from_then_on(fleet: FakeFleet) -> None:
    fleet.start(2)
    fleet.live_until(asked)
    fleet.act("promote")
    reply = fleet.admin("AssignVersion", pb.AssignVersionRequest(version=1, clusters=["cluster-3"]))
    assert (list(reply.pinned), reply.rollout) == (["cluster-3"], 1)
    done = fleet.live_until(over)
    assert done.phase == "done"
    roles = {member.cluster: member.role for member in done.members}
    assert roles == {
        "cluster-0": "candidate",
        "cluster-1": "candidate",
        "cluster-2": "candidate",
        "cluster-3": "pinned",
    }
    fleet.agents[3].beat()
    assert (fleet.agents[3].acting, fleet.agents[3].rollout_assignment) == (1, None)


def test_clusters_go_back_to_the_version_before_and_never_to_one_that_was_taken_back(fleet: FakeFleet) -> None:
    def back(**request: object) -> dict[str, tuple[int, int, bool]]:
        reply = fleet.admin("RollBack", pb.RollBackRequest(**request))
        return {entry.cluster: (entry.from_version, entry.to_version, entry.held) for entry in reply.assignments}

    def refused(said: str, **request: object) -> None:
        with pytest.raises(grpc.RpcError) as caught:
            back(**request)
        assert said in caught.value.details()
        assert "\n" not in caught.value.details()

    refused("nothing is written of versions", all=True)
    fleet.start(2)
    fleet.live_until(asked)
    refused("rollout 1 of v2 is asking: `policyctl rollout abort`", all=True)
    fleet.act("promote")
    assert fleet.live_until(over).phase == "done"

    fleet.publish(3)
    fleet.start(3)
    fleet.live_until(asked)
    fleet.act("abort")
    assert fleet.live_until(over).phase == "rolled-back"

    before = len(fleet.audit())
    names = [f"cluster-{number}" for number in range(4)]
    assert back(all=True, dry_run=True) == dict.fromkeys(names, (2, 1, False))
    refused("more than one line", all=True, reason="a\nb")
    refused("no cluster 'nowhere' is registered", clusters=["nowhere"])
    refused("name the clusters")
    assert len(fleet.audit()) == before
    assert back(clusters=["cluster-1"], reason="jobs wait") == {"cluster-1": (2, 1, False)}
    last = fleet.audit()[-1]
    assert (last.action, last.subject, last.detail) == ("rolled-back", "cluster-1", "v2 to v1: jobs wait")
    refused("a version on which cluster-1 acted before v1", clusters=["cluster-1"])
    assert back(all=True) == {name: (1 if name == "cluster-1" else 2, 1, False) for name in names}
    for agent in fleet.agents:
        agent.beat()
    assert [agent.acting for agent in fleet.agents] == [1, 1, 1, 1]
    fleet.start(3)
    assert {member.incumbent_version for member in fleet.rollout().members if member.role != "held"} == {1}


def test_what_cannot_be_begun_is_refused_in_a_line_and_changes_nothing(fleet: FakeFleet) -> None:
    def refused(said: str, **request: object) -> None:
        with pytest.raises(grpc.RpcError) as caught:
            fleet.admin("StartRollout", pb.StartRolloutRequest(**{"version": 2, **request}))
        assert said in caught.value.details()
        assert "\n" not in caught.value.details()

    before = len(fleet.audit())
    refused("there is no version v9", version=9)
    refused("there is no version v0", version=0)
    refused("no cluster would come to v1", version=1)
    refused(
        "canary names cluster 'norht'",
        plan_json='{"stages": [{"kind": "canary", "clusters": ["norht"]}, {"kind": "fleet"}]}',
    )
    refused("unknown setting speed", plan_json='{"speed": 1}')
    refused("kind = 'rocket'", plan_json='{"stages": [{"kind": "rocket"}]}')
    refused("is no JSON object", plan_json="[1]")
    refused("cannot be used", plan_json="{")
    refused("more than one line", reason="a\nb")
    policies = sorted((fleet.learner.state_dir / "policies").iterdir())
    damaged = {path: path.read_bytes() for path in policies}
    for path, data in damaged.items():
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    refused("the file of v2 is damaged or gone")
    for path, data in damaged.items():
        path.write_bytes(data)
    assert len(fleet.audit()) == before
    fleet.start(2)
    refused("rollout 1 of v2 is")


@pytest.mark.parametrize("version", [1, 2])
def test_a_rollout_waits_for_a_damaged_file_and_goes_on_once_it_is_put_back(fleet: FakeFleet, version: int) -> None:
    fleet.start(2)
    fleet.live_until(asked)
    fleet.act("promote")
    fleet.live_until(lambda rollout: rollout.stages[rollout.stage] == "canary")
    digest = fleet.admin("ShowVersion", pb.ShowVersionRequest(version=version)).card.digest
    file = fleet.learner.state_dir / "policies" / f"{digest}.safetensors"
    whole = file.read_bytes()
    file.unlink()
    paused = fleet.live_until(lambda rollout: rollout.phase == "paused")
    assert f"v{version}: its policy file is damaged or gone" in paused.reason
    assert "then `policyctl rollout resume`" in paused.reason
    assert {member.role for member in paused.members} >= {"alternating", "incumbent"}, "nobody is moved"
    beats = iter(range(5))
    fleet.live_until(lambda _: next(beats, None) is None)
    said = Counter(entry.action for entry in fleet.audit())
    assert said["rollout-paused"] == 1
    fleet.admin("RestoreVersion", pb.RestoreVersionRequest(version=version, file=whole))
    fleet.act("resume")
    assert fleet.live_until(over).phase in ("done", "asking", "rolled-back")


def test_evidence_that_cannot_be_is_refused_and_never_counted(fleet: FakeFleet) -> None:
    fleet.start(2)
    fleet.live_until(asked)
    fleet.act("promote")
    canary = fleet.live_until(lambda rollout: rollout.stages[rollout.stage] == "canary")
    name = next(member.cluster for member in canary.members if member.role == "alternating")
    agent = next(agent for agent in fleet.agents if agent.cluster == name)
    agent.beat()
    assert agent.rollout_assignment is not None
    first = agent.block
    good = [agent.made_up(first), agent.made_up(first + 1)]
    lie = pb.SwitchbackBlock.FromString(good[0].SerializeToString())
    lie.candidate = not lie.candidate
    for blocks, said in (([lie], "wrong-coin"), ([good[1], good[0]], "out-of-order"), ([good[0]] * 65, "too-many")):
        request = pb.ShareEvidenceRequest(
            cluster=name, incarnation=agent.incarnation, rollout=agent.rollout_assignment.rollout, blocks=blocks
        )
        with pytest.raises(grpc.RpcError, match=said):
            agent.call("ShareEvidence", request)
    held = next(member.blocks for member in fleet.rollout().members if member.cluster == name)
    assert held == first
    other = pb.ShareEvidenceRequest(cluster=name, incarnation=agent.incarnation, rollout=7, blocks=good)
    assert not agent.call("ShareEvidence", other).taken
