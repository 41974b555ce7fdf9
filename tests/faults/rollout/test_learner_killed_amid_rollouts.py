"""kill -9 of the learner wherever a rollout stands, forth and back, and a full disk: it stands there still."""

import resource
from pathlib import Path

import grpc
import pytest
from disturbed_fleet import SECTIONS, DisturbedFleet, disturbed_fleet
from learner_process import LearnerProcess
from places import KINDS, Place

from policy_net.exchange.generated import fleet_pb2 as pb

pytestmark = pytest.mark.heavy


def restarted(fleet: DisturbedFleet) -> None:
    fleet.learners[0].kill()
    fleet.learners[0].start()


def test_a_learner_that_is_killed_wherever_a_rollout_stands_goes_on_forth_and_back(tmp_path: Path) -> None:
    seen: set[Place] = set()
    with disturbed_fleet([LearnerProcess(tmp_path, **SECTIONS)]) as fleet:

        def kill(where: Place) -> None:
            seen.add(where)
            restarted(fleet)

        fleet.start()
        assert fleet.live(kill, abort_in="canary") == ("rolled-back", "canary")
        assert {agent.now() for agent in fleet.agents} == {(1, None)}
        fleet.start()
        assert fleet.live(kill) == ("done", "fleet")
        assert {agent.now() for agent in fleet.agents} == {(2, None)}
        # Nobody was half-way for longer than a heartbeat, and nobody is after one more life.
        restarted(fleet)
        fleet.beat()
        fleet.check(settled=True)
    assert {kind for phase, kind in seen if phase in ("running", "asking")} == set(KINDS)
    assert seen >= {("rolling-back", "canary"), ("rolled-back", "canary"), ("done", "fleet")}


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits another process's files")
def test_on_a_full_disk_nothing_is_decided_and_then_it_goes_on(tmp_path: Path) -> None:
    with disturbed_fleet([LearnerProcess(tmp_path, **SECTIONS)]) as fleet:
        (learner,) = fleet.learners

        def fill(where: Place) -> None:
            if where[0] not in ("running", "asking"):
                return
            before = fleet.admin("ListAudit", pb.ListAuditRequest()).entries
            resource.prlimit(learner.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
            with pytest.raises(grpc.RpcError) as refused:
                fleet.admin("ActOnRollout", pb.ActOnRolloutRequest(action="abort"), again=False)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert refused.value.details() == "the learner's disk is full; send this again later"
            assert fleet.admin("ListAudit", pb.ListAuditRequest()).entries == before
            resource.prlimit(learner.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

        fleet.start()
        assert fleet.live(fill, abort_in="wave") == ("rolled-back", "wave")
        restarted(fleet)
        fleet.beat()
        fleet.check(settled=True)
