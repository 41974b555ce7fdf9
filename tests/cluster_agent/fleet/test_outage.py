"""A learner that does not answer is said once, and again when the reason is another one; never with every attempt."""

from pathlib import Path

import structlog
from agent_fakes import PAIRS, STATUS, Clock, FakeLearner, FixedPolicy

from cluster_agent.active_policy import ActivePolicy, Candidate, CandidateFactory, PolicyIdentity
from cluster_agent.fleet.fleet_link import FleetLink, FleetTasks, Follows
from cluster_agent.fleet.policy_versions import KeptVersion, PolicySource
from cluster_agent.fleet.session import LearnerAccess, Outage, Session, retry_backoff
from cluster_agent.settings import PolicySettings, RetrySettings
from cluster_agent.telemetry import AgentTelemetry
from policy_net.errors import LearnerUnreachable

NOBODY = "UNAVAILABLE: no learner answers at 127.0.0.1:1: nobody listens there"
TLS = "UNAVAILABLE: no learner answers at 127.0.0.1:1: what listens there speaks TLS; set learner.tls"


class Told:
    def __init__(self) -> None:
        self.clock = Clock()
        self.outage = Outage(self.clock)

    def lines(self, *reasons: str, every_seconds: float = 5.0, answered: bool = False) -> list[str]:
        """What is logged while attempts fail for these reasons in turn."""
        with structlog.testing.capture_logs() as lines:
            for reason in reasons:
                self.clock.now += every_seconds
                self.outage.on_unanswered(LearnerUnreachable(reason))
            if answered:
                self.outage.on_answered()
        return [line.get("error", line["event"]) for line in lines]


def test_one_reason_is_one_line_whichever_call_meets_it() -> None:
    reported = Told()
    assert reported.lines(f"Heartbeat: {NOBODY}", *[f"Register: {NOBODY}"] * 1000) == [f"Heartbeat: {NOBODY}"]
    assert reported.lines(answered=True) == ["learner-returned"]
    assert reported.lines(answered=True) == []
    assert reported.lines(f"Register: {NOBODY}") == [f"Register: {NOBODY}"]


def test_another_reason_is_said_when_it_has_held_for_a_moment() -> None:
    reported = Told()
    reasons = [f"Heartbeat: {NOBODY}", *[f"Register: {TLS}"] * 100]
    assert reported.lines(*reasons, every_seconds=1.0) == [f"Heartbeat: {NOBODY}", f"Register: {TLS}"]
    assert reported.lines(*reasons, answered=True) == ["learner-returned"]


def test_reasons_that_take_turns_are_said_once_an_hour() -> None:
    reported = Told()
    taking_turns = [f"Register: {NOBODY}", f"Register: {TLS}"] * 1000
    assert len(reported.lines(*taking_turns, every_seconds=1.7)) == 2
    assert 4 <= len(reported.lines(*taking_turns, every_seconds=7.2)) <= 10


def test_words_that_change_each_time_fill_neither_log_nor_memory() -> None:
    reported = Told()
    assert len(reported.lines(*(f"Register: attempt {number}" for number in range(1000)), every_seconds=60.0)) <= 32
    assert len(reported.outage.reported) <= 16


def test_a_running_agent_says_what_the_learner_came_back_as(tmp_path: Path) -> None:
    learner, clock = FakeLearner(), Clock()
    session = Session(learner, "", (), clock)
    link = FleetLink(
        LearnerAccess(learner, session, AgentTelemetry(), retry_backoff(RetrySettings(), "alpha")),
        ActivePolicy(Candidate(FixedPolicy(PAIRS), PolicyIdentity("first", digest="first"))),
        PolicySource(PolicySettings(), CandidateFactory(PolicySettings()), KeptVersion(tmp_path)),
        lambda: STATUS,
        FleetTasks(heartbeat_seconds=2.0, follows=Follows.VERSIONS),
    )

    def attempt(fault: str) -> None:
        clock.now += 10.0
        learner.away, learner.away_as = int(bool(fault)), fault
        link.attempt()
        assert link.reachable != bool(fault)

    with structlog.testing.capture_logs() as lines:
        for fault in ("", NOBODY, NOBODY, TLS, TLS, ""):
            attempt(fault and f"Heartbeat: {fault}")
    said = [line.get("error", line["event"]) for line in lines if line["event"].startswith("learner-")]
    assert said == [f"Heartbeat: {NOBODY}", f"Heartbeat: {TLS}", "learner-returned"]
