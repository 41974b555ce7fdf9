"""The policy that does not act: slow, failing or absurd, it delays and changes nothing."""

import threading
from pathlib import Path

import pytest
from agent_fakes import PAIRS, Clock, FixedPolicy, make_state

from cluster_agent.acting.active_policy import ActivePolicy, Candidate, Identity
from cluster_agent.acting.deadline import DeadlineAsker
from cluster_agent.guard import Guard, GuardedDecision, Intervention
from cluster_agent.rollout.beside import Beside, show
from cluster_agent.rollout.conduct import Conduct
from policy_net.domain import Allocation, ClusterState, Decision, Trigger
from policy_net.exchange.rollout_duty import DutyRole, RolloutDuty
from policy_net.throughput.parametric import OnlineFit

ALONE = Decision({"job-0": Allocation(1, 1)})
DUTY = RolloutDuty(1, DutyRole.SHADOW, 2, 5, 3600.0, 600.0)


def beside(answer: Decision | Exception, patience_seconds: float = 60.0) -> tuple[Beside, Candidate, Guard]:
    guard = Guard(FixedPolicy(ALONE), 5.0)
    candidate = Candidate(FixedPolicy(answer), Identity("v2", version=2, digest="d"))
    return Beside(DeadlineAsker(5.0, Clock()), guard, patience_seconds), candidate, guard


@pytest.mark.parametrize(
    ("answer", "interventions", "decision", "answered"),
    [
        (PAIRS, (), PAIRS, True),
        (ValueError("no"), (Intervention.EXCEPTION,), None, False),
        (FloatingPointError("logits"), (Intervention.NOT_FINITE,), None, False),
        (Decision({}), (Intervention.IDLE,), None, True),
        (Decision({**PAIRS.allocation, "stranger": Allocation(1, 1)}), (Intervention.UNKNOWN_JOB,), PAIRS, True),
    ],
)
def test_what_the_guard_would_have_made_of_it_is_told_and_not_counted(
    answer: Decision | Exception, interventions: tuple[Intervention, ...], decision: Decision | None, answered: bool
) -> None:
    asked, candidate, guard = beside(answer)
    asked.ask(7, candidate, asked.asker, make_state(), Trigger.SLOT)
    found = asked.answer()
    assert found is not None
    assert (found.number, found.decision, found.interventions) == (7, decision, interventions)
    assert found.answered is answered
    assert guard.counts == {}
    assert asked.answer() is None, "it is asked once a decision"
    asked.close()


def test_one_that_does_not_answer_is_not_waited_for_on_a_live_cluster_nor_asked_again() -> None:
    release = threading.Event()

    class Slow(FixedPolicy):
        def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
            assert release.wait(120.0)
            return PAIRS

    asked, _, _ = beside(PAIRS, patience_seconds=0.0)
    candidate = Candidate(Slow(PAIRS), Identity("v2", version=2, digest="d"))
    for number, was_asked in ((0, True), (1, False)):
        asked.ask(number, candidate, asked.asker, make_state(), Trigger.SLOT)
        found = asked.answer()
        assert found is not None
        assert (found.asked, found.answered, found.decision) == (was_asked, False, None)
        assert found.interventions == (Intervention.DEADLINE,)
    release.set()
    asked.close()


def test_a_candidate_that_cannot_observe_hurts_nobody() -> None:
    class Blind(FixedPolicy):
        def observe(self, progress: object) -> None:
            raise ZeroDivisionError

    assert isinstance(show(Candidate(Blind(PAIRS), Identity("v2")), []), ZeroDivisionError)
    assert show(Candidate(FixedPolicy(PAIRS), Identity("v2")), []) is None


def test_a_shadows_sums_say_what_it_would_have_done_and_outlive_the_agent(tmp_path: Path) -> None:
    first = Candidate(FixedPolicy(PAIRS), Identity("v1", version=1, digest="1"))
    active = ActivePolicy(first)
    conduct = Conduct(tmp_path, "north", active, OnlineFit(), lambda: 0.0)
    conduct.follow(DUTY, 1, 100.0)
    for number, answer in enumerate((PAIRS, ALONE, ValueError("no"))):
        asked, candidate, _ = beside(answer)
        active.hold_beside(candidate)
        state = make_state(time_seconds=600.0 * number)
        turn = conduct.begin(state, number)
        assert (turn.acting, turn.other) == (first, candidate)
        guarded = GuardedDecision(PAIRS, None, (), 0.01)
        conduct.decided(guarded)
        asked.ask(number, candidate, asked.asker, state, Trigger.SLOT)
        found = asked.answer()
        assert found is not None
        conduct.compared(state, guarded, found)
        asked.close()
    for life in (conduct, None):
        if life is None:
            conduct.close()
            life = Conduct(tmp_path, "north", active, OnlineFit(), lambda: 0.0)  # noqa: PLW2901
        evidence = life.evidence()
        assert evidence is not None
        assert evidence.shadow is not None
        sums = evidence.shadow.message()
        assert (sums.decisions, sums.agreed, sums.failed, sums.candidate_interventions) == (3, 1, 1, 1)
        assert sums.believed_gain < 0.0, "it let one job train where the other one let two"
    life.on_taken(evidence, 0, taken=True)
    again = life.evidence()
    assert again is not None
    assert again.shadow is None, "what was told is not told again until there is more"
