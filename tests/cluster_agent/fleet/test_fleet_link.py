import time
from pathlib import Path

import numpy as np
import pytest
from agent_fakes import PAIRS, SPEC, STATUS, WEIGHTS, Clock, FakeLearner, FixedPolicy, make_state, policy_bytes

from cluster_agent.active_policy import ActivePolicy, Candidate, CandidateFactory, PolicyIdentity
from cluster_agent.errors import NoPolicy, StateDamaged
from cluster_agent.fleet.fleet_link import FleetLink, FleetTasks, Follows
from cluster_agent.fleet.learner_client import AgentStatus
from cluster_agent.fleet.policy_versions import KeptVersion, PolicySource, fetched_policy, local_policy
from cluster_agent.fleet.session import LearnerAccess, Session, retry_backoff
from cluster_agent.settings import Acting, PolicySettings, RetrySettings
from cluster_agent.telemetry import AgentTelemetry
from policy_net.domain import Trigger
from policy_net.errors import LearnerUnreachable
from policy_net.exchange.policy_file import digest_of

OTHER_SPEC = SPEC.model_copy(update={"jobs_per_batch": 5})


class World:
    def __init__(self, state_dir: Path, follow_head: bool = False, learner: FakeLearner | None = None) -> None:
        self.learner = learner or FakeLearner()
        self.factory = CandidateFactory(PolicySettings())
        self.active = ActivePolicy(Candidate(FixedPolicy(PAIRS), PolicyIdentity("first", digest="first")))
        self.kept = KeptVersion(state_dir)
        self.telemetry = AgentTelemetry()
        self.link = FleetLink(
            LearnerAccess(
                self.learner,
                Session(self.learner, "", ("vgg-16",)),
                self.telemetry,
                retry_backoff(RetrySettings(), "alpha"),
            ),
            self.active,
            PolicySource(PolicySettings(), self.factory, self.kept),
            lambda: STATUS,
            FleetTasks(heartbeat_seconds=3600.0, follows=Follows.HEAD if follow_head else Follows.VERSIONS),
        )

    def acting(self) -> str:
        candidate = self.active.begin_turn(0, make_state(), Trigger.SLOT).acting.candidate
        return candidate.identity.name

    def rejected_versions(self) -> float:
        value = self.telemetry.registry.get_sample_value("fedl2_agent_rejected_versions_total")
        assert value is not None
        return value


def test_an_assigned_version_becomes_active_between_two_decisions(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.acting() == "first"
    world.learner.publish(3, policy_bytes())
    world.link.beat()
    assert world.active.assigned.identity.name == "first", "only the loop changes who decides"
    assert world.acting() == "v3"
    assert world.active.assigned.identity.version == 3


def test_a_version_is_fetched_once_and_the_next_one_follows(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.learner.publish(3, policy_bytes())
    for _ in range(3):
        world.link.beat()
    world.learner.publish(4, policy_bytes(WEIGHTS * np.float32(2)))
    world.link.beat()
    assert world.learner.fetches == [3, 4]
    assert world.acting() == "v4"


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (policy_bytes(), "0" * 64),
        (policy_bytes()[:-40], None),
        (policy_bytes(np.zeros(OTHER_SPEC.parameter_count, np.float32), OTHER_SPEC), None),
        (b"", None),
    ],
    ids=["digest", "cut short", "other spec", "empty"],
)
def test_a_bad_version_is_counted_and_the_old_one_stays(tmp_path: Path, data: bytes, digest: str | None) -> None:
    world = World(tmp_path)
    world.learner.publish(3, data, digest)
    world.link.beat()
    world.link.beat()
    assert world.acting() == "first"
    assert world.rejected_versions() == 1
    assert world.learner.fetches == [3], "a bad version is not fetched at every heartbeat"


def test_a_version_whose_transfer_was_bad_is_fetched_again_later(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.learner.publish(3, policy_bytes(), "0" * 64)
    world.link.beat()
    world.learner.publish(3, policy_bytes())
    for _ in range(40):
        world.link.beat()
    assert world.acting() == "v3"


def test_a_learner_that_forgot_the_agent_is_told_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.link.beat()
    world.learner.forget_everybody()
    world.link.beat()
    assert world.learner.incarnation == 2
    assert world.learner.known == {2}


def test_another_learner_in_the_old_ones_place_is_not_taken_for_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.learner.publish(1, policy_bytes())
    world.link.beat()
    assert world.acting() == "v1"
    before = world.active.assigned.identity.digest
    world.learner.forget_everybody()
    world.learner.publish(1, policy_bytes(WEIGHTS * np.float32(3)))
    world.link.beat()
    assert world.acting() == "v1"
    assert world.active.assigned.identity.digest != before


def test_the_head_acts_where_it_is_followed(tmp_path: Path) -> None:
    world = World(tmp_path, follow_head=True)
    world.link.beat()
    world.link.beat()
    assert world.acting() == "head-0"
    assert world.learner.pulls == 1, "an unchanged head is not pulled again"


def test_the_version_active_outlives_the_agent(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.learner.publish(3, policy_bytes())
    world.link.beat()
    world.learner.publish(4, policy_bytes())
    world.link.beat()
    again = local_policy(PolicySource(PolicySettings(initial="drf"), world.factory, KeptVersion(tmp_path)))
    assert again is not None
    assert again.identity.version == 4
    assert len(list((tmp_path / "policies").iterdir())) == 1


def test_an_agent_that_acts_locally_ignores_what_was_kept(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.learner.publish(3, policy_bytes())
    world.link.beat()
    settings = PolicySettings(initial="drf", acting=Acting.LOCAL)
    again = local_policy(PolicySource(settings, world.factory, KeptVersion(tmp_path)))
    assert again is not None
    assert again.identity.name == "drf"


def test_a_damaged_kept_version_is_one_clear_error(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.learner.publish(3, policy_bytes())
    world.link.beat()
    path = tmp_path / "policies" / "v3.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StateDamaged, match="remove it"):
        local_policy(PolicySource(PolicySettings(), world.factory, KeptVersion(tmp_path)))


def test_a_flipped_byte_of_the_kept_version_is_found_at_the_start(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.learner.publish(3, policy_bytes())
    world.link.beat()
    path = tmp_path / "policies" / "v3.safetensors"
    data = bytearray(path.read_bytes())
    data[-6] ^= 1
    path.write_bytes(data)
    with pytest.raises(StateDamaged, match=r"v3\.safetensors: .* is [0-9a-f]{64}, expected [0-9a-f]{64}.*remove it"):
        local_policy(PolicySource(PolicySettings(), world.factory, KeptVersion(tmp_path)))


def test_a_byte_flipped_on_the_way_leaves_the_old_version_active(tmp_path: Path) -> None:
    world = World(tmp_path)
    data = bytearray(policy_bytes())
    data[-6] ^= 1
    world.learner.publish(3, bytes(data), digest_of(policy_bytes()))
    world.link.beat()
    assert world.acting() == "first"
    assert world.rejected_versions() == 1


def test_the_version_that_acts_is_the_assigned_one_even_where_two_are_alike(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.learner.publish(3, policy_bytes())
    world.link.beat()
    assert world.acting() == "v3"
    world.learner.publish(4, policy_bytes())
    world.link.beat()
    world.acting()
    assert world.active.assigned.identity.version == 4


def fetch(learner: FakeLearner, state_dir: Path, acting: Acting = Acting.ASSIGNED) -> Candidate:
    clock = Clock()
    return fetched_policy(
        PolicySource(PolicySettings(acting=acting), CandidateFactory(PolicySettings()), KeptVersion(state_dir)),
        LearnerAccess(learner, Session(learner, "", ()), AgentTelemetry(), retry_backoff(RetrySettings(), "alpha")),
        10.0,
        clock,
        clock.wait,
    )


def test_a_first_policy_is_fetched_with_patience(tmp_path: Path) -> None:
    learner = FakeLearner()
    learner.publish(1, policy_bytes())
    learner.away = 3
    assert fetch(learner, tmp_path).identity.version == 1
    assert fetch(learner, tmp_path, Acting.HEAD).identity.name == "head-0"


def test_patience_ends(tmp_path: Path) -> None:
    learner = FakeLearner()
    learner.away = 10**6
    with pytest.raises(NoPolicy, match="not reachable"):
        fetch(learner, tmp_path)


def test_a_cluster_without_an_assignment_has_no_policy(tmp_path: Path) -> None:
    with pytest.raises(NoPolicy, match="assigned no version"):
        fetch(FakeLearner(), tmp_path)


def test_waits_double_are_bounded_and_differ_between_clusters() -> None:
    settings = RetrySettings(initial_seconds=1.0, maximum_seconds=8.0)
    alpha, beta = retry_backoff(settings, "alpha"), retry_backoff(settings, "beta")
    waits = [alpha.next_seconds() for _ in range(50)]
    assert all(0.1 * min(8.0, 2.0**index) <= wait <= min(8.0, 2.0**index) for index, wait in enumerate(waits))
    assert [beta.next_seconds() for _ in range(50)] != waits
    alpha.reset()
    assert alpha.next_seconds() <= 1.0


def test_the_last_heartbeat_is_sent_on_the_way_out(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.link.start()
    while not world.learner.heartbeats:
        time.sleep(0.001)
    before = len(world.learner.heartbeats)
    world.link.finish(60.0)
    assert len(world.learner.heartbeats) == before + 1


def test_an_unreachable_learner_is_no_error_of_the_link(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.learner.away = 10**6
    with pytest.raises(LearnerUnreachable):
        world.link.beat()
    world.link.start()
    world.link.finish(60.0)
    assert world.acting() == "first"


def test_a_fault_of_our_own_costs_one_heartbeat_and_not_all_of_them(tmp_path: Path) -> None:
    world = World(tmp_path)
    failures = [RuntimeError("changed size during iteration")]

    def status() -> AgentStatus:
        if failures:
            raise failures.pop()
        return STATUS

    world.link.status = status
    world.link.start()
    deadline = time.monotonic() + 60.0
    while not world.learner.heartbeats and time.monotonic() < deadline:
        time.sleep(0.01)
    world.link.finish(60.0)
    assert world.learner.heartbeats


def test_a_learner_that_lost_a_version_gets_it_back_from_the_agent_that_acts_on_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.learner.publish(3, policy_bytes())
    world.link.beat()
    assert world.acting() == "v3"

    # It starts again while the learner's file is damaged: it acts on its own copy, and says why it does not fetch it.
    again = World(tmp_path, learner=world.learner)
    kept = again.kept.load(again.factory)
    assert kept is not None
    again.active.propose(kept)
    again.learner.damaged, again.learner.lost_digest = {3}, digest_of(policy_bytes())
    again.link.beat()
    assert again.acting() == "v3"
    assert again.learner.given_back == [policy_bytes()]
    again.link.beat()
    status = again.learner.heartbeats[-1]
    assert (status.refused_version, status.refused_reason) == (3, "unavailable")
    again.learner.damaged.clear()
    for _ in range(40):
        again.link.beat()
    assert again.learner.heartbeats[-1].refused_version == 0
    again.learner.lost_digest = "0" * 64
    for _ in range(3):
        again.link.beat()
    assert len(again.learner.given_back) == 1, "of another one it has no copy"
