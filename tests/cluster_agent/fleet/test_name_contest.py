"""Two agents of one name: each takes it back less and less often, says so, and goes on; others notice nothing."""

from collections.abc import Sequence

import pytest
import structlog
from agent_fakes import STATUS, Clock, FakeLearner

from cluster_agent.errors import NameContested
from cluster_agent.fleet.session import Session
from policy_net.errors import LearnerUnreachable
from policy_net.exchange.wire import Registration

_DAY_SECONDS = 24 * 3600.0


class OneName(FakeLearner):
    """Knows only who registered last, as learners do."""

    def register(self, spec_digest: str, job_types: Sequence[str]) -> Registration:
        self.known.clear()
        return super().register(spec_digest, job_types)


class Agent:
    """What an agent's heartbeat does with its session."""

    def __init__(self, learner: FakeLearner, clock: Clock) -> None:
        self.learner = learner
        self.session = Session(learner, "", (), clock, "north")

    def beat(self) -> None:
        try:
            registration = self.session.registered()
            if self.learner.heartbeat(registration.incarnation, STATUS).reregister:
                self.session.forget(registration.incarnation)
                self.session.registered()
        except NameContested:
            pass


def together(learner: FakeLearner, agents: Sequence[Agent], clock: Clock, seconds: float) -> list[str]:
    """Let agents beat every two seconds; what they log of a second agent."""
    with structlog.testing.capture_logs() as lines:
        for _ in range(int(seconds / 2.0)):
            for agent in agents:
                agent.beat()
            clock.now += 2.0
    return [line["error"] for line in lines if line["event"] == "name-contested"]


def test_two_agents_of_one_name_take_it_from_each_other_less_and_less_often_and_say_so() -> None:
    learner, clock = OneName(), Clock()
    agents = [Agent(learner, clock), Agent(learner, clock)]
    said = together(learner, agents, clock, 30.0)
    assert said == ["another agent calls itself north"] * 2
    assert learner.incarnation == 6
    together(learner, agents, clock, 3600.0)
    before = learner.incarnation
    said = together(learner, agents, clock, _DAY_SECONDS)
    taken = learner.incarnation - before
    assert _DAY_SECONDS / 300.0 - 20 <= taken <= _DAY_SECONDS / 300.0 + 20, "in five minutes once, by one of them"
    assert len(said) == taken
    assert set(said) == {"another agent calls itself north"}


def test_who_is_left_has_the_name_again_soon_and_keeps_it() -> None:
    learner, clock = OneName(), Clock()
    agents = [Agent(learner, clock), Agent(learner, clock)]
    together(learner, agents, clock, 7200.0)
    assert together(learner, agents[:1], clock, 302.0) in ([], ["another agent calls itself north"])
    before = learner.incarnation
    assert together(learner, agents[:1], clock, 7200.0) == []
    assert learner.incarnation == before
    assert learner.known == {before}
    current = agents[0].session.registration
    assert current is not None
    assert current.incarnation == before


def test_a_restart_in_between_or_an_agent_that_is_moved_is_no_contest() -> None:
    learner, clock = OneName(), Clock()
    old = Agent(learner, clock)
    old.beat()
    new = Agent(learner, clock)
    assert together(learner, [new, old], clock, 2.0) == []  # the old one takes the name once, and ends
    assert together(learner, [new], clock, 3600.0) == []
    assert learner.known == {new.session.registered().incarnation}


@pytest.mark.parametrize("forgets", [1, 20])
def test_a_learner_that_forgets_its_clusters_again_and_again_is_no_second_agent(forgets: int) -> None:
    learner, clock = FakeLearner(), Clock()
    agent = Agent(learner, clock)
    for _ in range(forgets):
        assert together(learner, [agent], clock, 4.0) == []
        learner.forget_everybody()
    assert together(learner, [agent], clock, 4.0) == []
    assert learner.incarnation == forgets + 1
    assert learner.known == {forgets + 1}


def test_a_registration_whose_answer_was_lost_is_this_agents_own() -> None:
    learner, clock = OneName(), Clock()
    agent = Agent(learner, clock)
    agent.beat()
    for _ in range(5):
        learner.forget_everybody()
        agent.session.forget(learner.incarnation)
        learner.incarnation += 1  # taken, and the answer did not arrive
        learner.away = 1
        with pytest.raises(LearnerUnreachable):
            agent.session.registered()
        assert together(learner, [agent], clock, 2.0) == []
    assert learner.incarnation == 11


def test_a_cluster_of_another_learner_in_its_place_is_taken_as_before() -> None:
    learner, clock = OneName(), Clock()
    agent = Agent(learner, clock)
    agent.beat()
    for number in (90, 7, 500):
        learner.forget_everybody()
        learner.incarnation = number
        clock.now += 3600.0
        assert together(learner, [agent], clock, 2.0) == []
