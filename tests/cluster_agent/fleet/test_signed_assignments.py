"""An agent's link to a learner that signs, and to somebody in the learner's place."""

import dataclasses
from pathlib import Path

import pytest
from agent_fakes import PAIRS, STATUS, Clock, FakeLearner, FixedPolicy, make_state, policy_bytes
from signing_fleet import DATA, SigningFleet

from cluster_agent.active_policy import ActivePolicy, Candidate, CandidateFactory, PolicyIdentity
from cluster_agent.errors import NoPolicy
from cluster_agent.fleet.fleet_link import FleetLink, FleetTasks, Follows
from cluster_agent.fleet.learner_client import AgentStatus
from cluster_agent.fleet.policy_versions import KeptVersion, PolicySource, fetched_policy
from cluster_agent.fleet.session import LearnerAccess, Session, retry_backoff
from cluster_agent.settings import PolicySettings, RetrySettings
from cluster_agent.telemetry import AgentTelemetry
from policy_net.domain import Trigger
from policy_net.exchange.fleet_trust import FleetTrust
from policy_net.exchange.policy_file import digest_of
from policy_net.exchange.signed_documents import KeyRole
from policy_net.exchange.wire import Assignment, FetchedPolicy, Registration


class SigningLearner(FakeLearner):
    """Signs what it assigns; `kept` is an answer that somebody sends again in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = SigningFleet()
        self.assigned = 1
        self.kept: FetchedPolicy | None = None

    def heartbeat(self, incarnation: int, status: AgentStatus) -> Assignment:
        assignment = super().heartbeat(incarnation, status)
        return dataclasses.replace(assignment, timestamp=self.fleet.timestamp(self.assigned))

    def fetch_policy(self, version: int) -> FetchedPolicy:
        self._answer()
        self.fetches.append(version)
        return self.kept or self.fleet.version(version, timestamp=self.fleet.timestamp(self.assigned))


class World:
    def __init__(self, folder: Path) -> None:
        self.learner, self.telemetry = SigningLearner(), AgentTelemetry()
        self.active = ActivePolicy(Candidate(FixedPolicy(PAIRS), PolicyIdentity("first", digest="first")))
        trust = FleetTrust(folder, "north", False, Clock())
        self.source = PolicySource(PolicySettings(), CandidateFactory(PolicySettings()), KeptVersion(folder), trust)
        session = Session(self.learner, "", ("vgg-16",))
        self.access = LearnerAccess(self.learner, session, self.telemetry, retry_backoff(RetrySettings(), "north"))
        self.link = FleetLink(
            self.access,
            self.active,
            self.source,
            lambda: STATUS,
            FleetTasks(heartbeat_seconds=3600.0, follows=Follows.VERSIONS),
        )
        self.link.beat()

    def acting(self) -> int:
        candidate = self.active.begin_turn(0, make_state(), Trigger.SLOT).acting.candidate
        return candidate.identity.version

    def reported(self) -> tuple[int, str]:
        """What the learner hears of it at the next heartbeat."""
        self.link.beat()
        status = self.learner.heartbeats[-1]
        return status.refused_version, status.refused_reason

    def refusals(self, reason: str) -> float:
        labels = {"reason": reason}
        return self.telemetry.registry.get_sample_value("fedl2_agent_version_refusals_total", labels) or 0.0


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_signed_versions_act_one_after_the_other_and_back_again(world: World) -> None:
    assert (world.acting(), world.reported()) == (1, (0, ""))
    for version in (2, 3, 2):
        world.learner.assigned = version
        world.link.beat()
        assert (world.acting(), world.reported()) == (version, (0, ""))


def test_a_refusal_is_counted_told_and_over_when_a_sound_version_acts(world: World) -> None:
    data = policy_bytes()
    world.learner.kept = world.learner.fleet.version(2, data=data, digest=digest_of(data + b"x"))
    world.learner.assigned = 2
    world.link.beat()
    assert (world.acting(), world.reported()) == (1, (2, "bad-digest"))
    assert world.refusals("bad-digest") == 1
    world.learner.kept = None
    world.learner.assigned = 3
    world.link.beat()
    assert (world.acting(), world.reported()) == (3, (0, ""))


def test_an_old_version_that_somebody_sends_again_does_not_act(world: World) -> None:
    old = world.learner.fleet.version(1)
    world.learner.assigned = 2
    world.link.beat()
    assert world.acting() == 2
    world.learner.kept, world.learner.assigned = old, 1
    world.link.beat()
    assert (world.acting(), world.reported()) == (2, (1, "replayed"))


@pytest.mark.parametrize("role", KeyRole)
def test_a_rotation_is_followed_while_the_same_version_is_assigned(world: World, role: KeyRole) -> None:
    world.learner.fleet.rotate(role)
    world.link.beat()
    assert (world.acting(), world.reported()) == (1, (0, ""))
    world.learner.assigned = 2
    world.link.beat()
    assert (world.acting(), world.reported()) == (2, (0, ""))


def test_an_agent_without_a_policy_starts_with_what_is_assigned_by_the_time_that_it_asks(tmp_path: Path) -> None:
    class Hasty(SigningLearner):
        """Assigns another version between a registration and what follows."""

        def register(self, spec_digest: str, job_types: object) -> Registration:
            registration = super().register(spec_digest, ())
            self.assigned = min(self.assigned + 1, 3)
            return registration

    clock = Clock()
    learner = Hasty()
    access = LearnerAccess(learner, Session(learner, "", ()), AgentTelemetry(), retry_backoff(RetrySettings(), "north"))
    trust = FleetTrust(tmp_path, "north", False, clock)
    source = PolicySource(PolicySettings(), CandidateFactory(PolicySettings()), KeptVersion(tmp_path), trust)
    assert fetched_policy(source, access, 60.0, clock, clock.wait).identity.version == 3


def test_an_agent_without_a_policy_does_not_start_with_an_unsigned_one(tmp_path: Path) -> None:
    learner = FakeLearner()
    learner.publish(1, DATA)
    clock = Clock()
    access = LearnerAccess(learner, Session(learner, "", ()), AgentTelemetry(), retry_backoff(RetrySettings(), "north"))
    trust = FleetTrust(tmp_path, "north", False, clock)
    source = PolicySource(PolicySettings(), CandidateFactory(PolicySettings()), KeptVersion(tmp_path), trust)
    with pytest.raises(NoPolicy, match=r"learner\.unsigned_versions"):
        fetched_policy(source, access, 60.0, clock, clock.wait)
