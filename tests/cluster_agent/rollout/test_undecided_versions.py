"""No cluster on a version that nobody decided: whatever is assigned, asked, lied, damaged, lost or killed."""

import tempfile
from pathlib import Path

import pytest
from agent_fakes import Clock
from assignment_worlds import RolloutLearner, SimulatedAgent, alternating, shadow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy_net.exchange.rollout_assignment import AssignmentRole

ATTRIBUTES = {"assign": "assigned", "ask": "rollout_assignment", "say": "said", "away": "away"}
STEPS = st.one_of(
    st.tuples(st.just("assign"), st.integers(1, 3)),
    st.tuples(st.just("ask"), st.sampled_from([None, shadow(2), shadow(3), alternating(2), alternating(3, 2)])),
    st.tuples(st.just("say"), st.sampled_from(["as signed", None, alternating(3), shadow(2)])),
    st.tuples(st.just("damage"), st.integers(1, 3)),
    st.tuples(st.just("away"), st.integers(0, 3)),
    st.tuples(st.just("later"), st.floats(1.0, 400.0)),
    st.tuples(st.just("kill"), st.none()),
    st.tuples(st.just("decide"), st.none()),
)


@pytest.mark.heavy
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, max_size=25))
def test_what_acts_was_assigned_or_asked_of_this_cluster_and_nothing_else(steps: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        learner, clock = RolloutLearner(), Clock()
        agent = SimulatedAgent(Path(folder), learner, clock)
        agent.live(1)
        assigned, asked_until = {1}, {}
        for what, value in steps:
            if what in ATTRIBUTES:
                setattr(learner, ATTRIBUTES[what], value)
            elif what == "damage":
                learner.damaged.add(value)  # type: ignore[arg-type]
            elif what == "later":
                clock.now += value  # type: ignore[operator]
            elif what == "kill":
                agent = SimulatedAgent(Path(folder), learner, clock)
            if agent.backend.finished:
                return
            reached = learner.away == 0
            agent.link.attempt()
            if reached:
                assigned.add(learner.assigned)
                if (
                    learner.rollout_assignment is not None
                    and learner.rollout_assignment.role is AssignmentRole.ALTERNATING
                ):
                    asked_until[learner.rollout_assignment.beside_version] = learner.expires
            acting = agent.decide().identity.version
            assert acting not in learner.damaged or acting in learner.fetches
            current = agent.active.assigned.identity.version
            if acting != current:
                assert clock.now < asked_until[acting], "the fleet's key said so, and has not stopped saying so"
                reported = agent.rollout_part.rollout_assignment
                assert reported is not None
                assert (reported.role, reported.beside_version) == (AssignmentRole.ALTERNATING, acting)
            else:
                assert acting in assigned
            if (
                reached
                and learner.said == "as signed"
                and learner.rollout_assignment is None
                and clock.now < learner.expires
            ):
                assert acting == current, "an assignment that ended is over with the next decision"
