"""The policy that does not act: slow, failing or absurd, it delays and changes nothing."""

import threading
from pathlib import Path

import pytest
from agent_fakes import PAIRS, Clock, FixedPolicy, make_state

from cluster_agent.active_policy import ActivePolicy, Candidate, DeadlineAsker, Decider, PolicyIdentity
from cluster_agent.guard import ChallengerDecision, Guard, GuardedDecision, Intervention
from cluster_agent.rollout.rollout_part import RolloutPart
from policy_net.domain import Allocation, ClusterState, Decision, Trigger
from policy_net.exchange.rollout_assignment import AssignmentRole, RolloutAssignment
from policy_net.throughput.parametric import OnlineFit

ALONE = Decision({"job-0": Allocation(1, 1)})
DUTY = RolloutAssignment(1, AssignmentRole.SHADOW, 2, 5, 3600.0, 600.0)


def challenger(policy: FixedPolicy) -> Decider:
    return Decider(Candidate(policy, PolicyIdentity("v2", version=2, digest="d")), DeadlineAsker(5.0, Clock()))


def asked(decider: Decider, guard: Guard, patience_seconds: float = 60.0) -> ChallengerDecision:
    state = make_state()
    return guard.judge_challenger(decider.begin(state, Trigger.SLOT)(patience_seconds), state)


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
    guard, decider = Guard(FixedPolicy(ALONE), 5.0), challenger(FixedPolicy(answer))
    found = asked(decider, guard)
    assert (found.decision, found.interventions) == (decision, interventions)
    assert found.answered is answered
    assert guard.counts == {}
    decider.asker.close()


def test_one_that_does_not_answer_is_not_waited_for_on_a_live_cluster_nor_asked_again() -> None:
    release = threading.Event()

    class Slow(FixedPolicy):
        def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
            assert release.wait(120.0)
            return PAIRS

    guard, decider = Guard(FixedPolicy(ALONE), 5.0), challenger(Slow(PAIRS))
    for was_asked in (True, False):
        found = asked(decider, guard, patience_seconds=0.0)
        assert (found.asked, found.answered, found.decision) == (was_asked, False, None)
        assert found.interventions == (Intervention.DEADLINE,)
    release.set()
    decider.asker.close()


def test_a_candidate_that_cannot_observe_hurts_nobody() -> None:
    class Blind(FixedPolicy):
        def observe(self, progress: object) -> None:
            raise ZeroDivisionError

    assert isinstance(challenger(Blind(PAIRS)).show([]), ZeroDivisionError)
    assert challenger(FixedPolicy(PAIRS)).show([]) is None


def test_a_shadows_sums_say_what_it_would_have_done_and_outlive_the_agent(tmp_path: Path) -> None:
    first = Candidate(FixedPolicy(PAIRS), PolicyIdentity("v1", version=1, digest="1"))
    active, guard = ActivePolicy(first), Guard(FixedPolicy(ALONE), 5.0)
    rollout_part = RolloutPart(tmp_path, "north", active, OnlineFit(), lambda: 0.0)
    rollout_part.follow(DUTY, 1, 100.0)
    for number, answer in enumerate((PAIRS, ALONE, ValueError("no"))):
        candidate = Candidate(FixedPolicy(answer), PolicyIdentity("v2", version=2, digest="d"))
        active.set_challenger(candidate)
        state = make_state(time_seconds=600.0 * number)
        turn = active.begin_turn(number, state, Trigger.SLOT, rollout_part.challenger_decides)
        assert turn.challenger is not None
        assert (turn.acting.candidate, turn.challenger.candidate) == (first, candidate)
        turn.guarded = GuardedDecision(PAIRS, None, (), 0.01)
        rollout_part.decided(turn)
        turn.challenged = guard.judge_challenger(turn.challenger.begin(state, Trigger.SLOT)(60.0), state)
        rollout_part.ended(turn)
    for life in (rollout_part, None):
        if life is None:
            rollout_part.close()
            life = RolloutPart(tmp_path, "north", active, OnlineFit(), lambda: 0.0)  # noqa: PLW2901
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
