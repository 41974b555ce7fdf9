import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_makers import NOW, at_stage, started, with_role

from global_learner.policyctl.rollout_views import rollout_facts, rollout_table
from global_learner.rollout.evidence_store import Brought
from global_learner.rollout.judging import Judge
from global_learner.rollout.plan import RolloutPlan
from global_learner.rollout.queries import (
    Query,
    QueryAnswer,
    QueryStanding,
    ShownQuery,
    after,
    decided,
    is_due,
    line_of,
    state_of,
    with_queries,
    within,
)
from global_learner.rollout.rollout_messages import Overview, overview_message
from global_learner.rollout.rollout_store import RolloutRecord
from global_learner.rollout.state import VersionRole
from global_learner.rollout.verdicts.evidence import Shadowed, SwitchbackBlock
from global_learner.rollout.verdicts.verdict import StageOutcome, Verdict

DAY, MINUTE = 86_400.0, 60.0
TEXT = 'sum(rate(failed_total{cluster=~"$clusters"}[30m]))'


def query(**changes: object) -> Query:
    """Asked each minute; its number has to hold for ten."""
    content = {"name": "failed", "address": "http://here:9090", "query": TEXT, "at_most": 0.5, "hold_minutes": 10}
    return Query.model_validate(content | changes)


def lived(answers: Sequence[float | None], of: Query | None = None, every: float = MINUTE) -> QueryStanding | None:
    """What is known after answers, one each minute, the last of them now; None is no answer."""
    standing = None
    for place, value in enumerate(answers):
        at = NOW - (len(answers) - 1 - place) * every
        answer = QueryAnswer(at, fault="silent") if value is None else QueryAnswer(at, value)
        standing = after(of or query(), standing, answer)
    return standing


@pytest.mark.parametrize(
    ("answers", "known"),
    [
        ([], None),
        ([0.1] * 11, True),
        ([0.9] * 11, False),
        ([0.5] * 11, True),  # a bound is good
        ([0.1] * 10, None),
        ([0.9] * 10, None),
        ([0.9, *[0.1] * 10], None),
        ([0.1, *[0.9] * 10], None),
        ([0.9, *[0.1] * 11], True),
        ([*[0.1] * 30, 0.9], None),
        ([*[0.1] * 11, None], None),  # the latest question has to have an answer
        ([*[0.9] * 11, None], None),
        ([0.1, None, None, None, *[0.1] * 7], True),
        ([0.1, None, None, None, None, None, *[0.1] * 5], None),  # nothing is known of so long a gap
        ([None] * 500, None),
        ([math.nan] * 500, None),
        ([math.inf] * 500, None),
    ],
)
def test_a_number_says_something_once_it_has_said_so_for_long_enough(
    answers: list[float | None], known: bool | None
) -> None:
    assert decided(query(), lived(answers), NOW) is known


def test_three_answers_are_the_least() -> None:
    brief = query(hold_minutes=2)
    assert decided(brief, lived([0.1] * 3, brief), NOW) is True
    assert decided(brief, lived([0.1, 0.1], brief, 2 * MINUTE), NOW) is None


def test_an_old_answer_says_nothing_and_nothing_does_while_a_clock_jumps() -> None:
    standing = lived([0.1] * 11)
    assert decided(query(), standing, NOW + 5 * MINUTE) is True
    assert decided(query(), standing, NOW + 6 * MINUTE) is None
    assert decided(query(), standing, NOW - DAY) is None
    for jump in (DAY, -DAY):
        jumped = after(query(), standing, QueryAnswer(NOW + jump, 0.1))
        assert decided(query(), jumped, NOW + jump) is None
        assert is_due(query(), standing, NOW + jump)
    assert not is_due(query(), standing, NOW + 59.0)
    assert is_due(query(), standing, NOW + MINUTE)
    assert is_due(query(), None, NOW)


def test_against_the_incumbent_bounds_are_times_its_number() -> None:
    against = query(against="incumbent", at_most=1.2, at_least=0.5)
    assert within(against, 1.2, 1.0) is True
    assert within(against, 1.3, 1.0) is False
    assert within(against, 0.4, 1.0) is False
    assert within(against, 0.0, 0.0) is True
    # A first failure beside none says nothing of so many times more: no false fail.
    assert "endlessly" in str(within(against, 1.0, 0.0))
    assert "nothing can be" in str(within(against, 1.0, -1.0))
    assert "nothing can be" in str(within(against, 1.0, None))
    assert within(query(at_most=None, at_least=2.0), 1.0, None) is False
    standing = after(against, None, QueryAnswer(NOW, 1.0, 0.0))
    assert state_of(against, standing, NOW) == "unanswered"
    assert "endlessly" in line_of(against, standing, NOW)


PASSED = Verdict(StageOutcome.PASS, reasons=("others pass",))


def judged(standing: QueryStanding | None, verdict: Verdict = PASSED, *, began: float = NOW - DAY, over: float = -DAY):  # type: ignore[no-untyped-def]
    standings = {} if standing is None else {"failed": standing}
    return with_queries(verdict, [query()], standings, NOW, stage_unix_seconds=began, over_seconds=over)


def test_a_stage_passes_with_a_good_number_and_fails_with_a_bad_one() -> None:
    good = judged(lived([0.1] * 11))
    assert good.outcome is StageOutcome.PASS
    assert good.reasons == ("others pass", "query failed: 0.1 is within its bounds, for 10 of 10 min")
    waits = Verdict(StageOutcome.WAIT)
    assert judged(lived([0.1] * 11), waits).outcome is StageOutcome.WAIT
    for others in (PASSED, waits, Verdict(StageOutcome.INCONCLUSIVE)):
        bad = judged(lived([0.9] * 11), others)
        assert bad.outcome is StageOutcome.FAIL
        assert bad.reasons == ("query failed: 0.9 is beyond its bounds (at most 0.5), for 10 of 10 min",)
    failed = Verdict(StageOutcome.FAIL, reasons=("others fail",))
    assert judged(lived([0.1] * 11), failed) == failed


def test_without_an_answer_nothing_passes_or_fails_and_an_operator_is_asked_when_nothing_else_is_waited_for() -> None:
    silent = lived([None] * 200)
    asked = judged(silent)
    assert asked.outcome is StageOutcome.INCONCLUSIVE
    assert asked.reasons[-1] == "query failed: no answer: silent"
    assert judged(None).outcome is StageOutcome.INCONCLUSIVE
    # For two hours it is waited for, from the begin of the stage or the latest answer on.
    assert judged(silent, began=NOW - 119 * MINUTE).outcome is StageOutcome.WAIT
    assert judged(silent, began=NOW - 120 * MINUTE).outcome is StageOutcome.INCONCLUSIVE
    assert judged(lived([0.1, *[None] * 100])).outcome is StageOutcome.WAIT
    assert judged(lived([0.1, *[None] * 120])).outcome is StageOutcome.INCONCLUSIVE
    for outcome in (StageOutcome.WAIT, StageOutcome.INCONCLUSIVE):
        assert judged(silent, Verdict(outcome)).outcome is outcome


def test_a_number_that_is_now_good_and_now_bad_is_asked_about_when_the_stage_is_over() -> None:
    restless = lived([0.1, 0.9] * 100)
    assert judged(restless).outcome is StageOutcome.WAIT
    assert judged(restless, over=9 * MINUTE).outcome is StageOutcome.WAIT
    assert judged(restless, over=10 * MINUTE).outcome is StageOutcome.INCONCLUSIVE


@given(st.lists(st.sampled_from([0.1, 0.9, None]), max_size=40), st.sampled_from(StageOutcome))
def test_a_query_never_passes_in_silence_and_never_fails_by_it(
    answers: list[float | None], others: StageOutcome
) -> None:
    outcome = judged(lived(answers), Verdict(others)).outcome
    latest = answers[-11:]
    if outcome is StageOutcome.PASS:
        assert others is StageOutcome.PASS
        assert latest[-1] == 0.1
        assert 0.9 not in latest
    if outcome is StageOutcome.FAIL and others is not StageOutcome.FAIL:
        assert latest[-1] == 0.9
        assert 0.1 not in latest
    if others is StageOutcome.FAIL:
        assert outcome is StageOutcome.FAIL


def test_a_query_is_filled_in_with_the_clusters_that_have_the_candidate_and_those_that_do_not() -> None:
    state = at_stage("canary")
    canaries = sorted(with_role(state, VersionRole.ALTERNATING))
    assert sorted(state.trying) == canaries
    assert set(state.trying) | set(state.untouched) == {member.cluster for member in state.members}
    own = query().texts(["a.b", "a"], ["c"])
    assert own == ('sum(rate(failed_total{cluster=~"a|a[.]b"}[30m]))',)
    both = query(against="incumbent").texts(["a"], ["c", "b"])
    assert both == (TEXT.replace("$clusters", "a"), TEXT.replace("$clusters", "b|c"))
    assert query(against="incumbent").texts(["a"], []) is None
    assert query().texts([], ["c"]) is None
    assert query(query="vector(1)").texts([], []) == ("vector(1)",)
    assert not started().trying


def test_stages_are_judged_by_the_queries_that_name_them() -> None:
    content = query(stages=["canary"]).model_dump(exclude_none=True)
    plan = RolloutPlan.model_validate({"queries": [content]})
    thrives = {f"cluster-{number}": blocks(60) for number in range(8)}
    good = {"failed": lived([0.1] * 11)}
    bad = {"failed": lived([0.9] * 11)}
    canary, wave, shadow = (at_stage(kind, plan) for kind in ("canary", "wave", "shadow"))
    for state, standings, outcome in [
        (canary, {}, StageOutcome.WAIT),
        (canary, good, StageOutcome.PASS),
        (canary, bad, StageOutcome.FAIL),
        (wave, bad, StageOutcome.PASS),
    ]:
        assert Judge().judge(state, Brought(thrives), None, standings, NOW).outcome is outcome
    late = Judge().judge(canary, Brought(thrives), None, {}, NOW + DAY)
    assert late.outcome is StageOutcome.INCONCLUSIVE
    shadowed = Brought({}, {name: Shadowed(100, agreed=100) for name in with_role(shadow, VersionRole.SHADOW)})
    assert Judge().judge(shadow, shadowed, None, bad, NOW + DAY).outcome is StageOutcome.PASS
    assert Judge().judge(started(plan), Brought(), None, bad, NOW).outcome is StageOutcome.WAIT


def blocks(pairs: int) -> list[SwitchbackBlock]:
    """Pairs in which the candidate has fewer jobs."""
    return [
        SwitchbackBlock(number, number % 2 == 0, 5.0 * (1.0 - 0.3 * (number % 2 == 0)) + 0.01 * (number % 3), 5.0)
        for number in range(2 * pairs)
    ]


def test_status_shows_a_query_in_a_line_and_its_numbers_as_json() -> None:
    state = at_stage("canary")
    of = query(against="incumbent", at_most=2.0)
    compared = after(of, None, QueryAnswer(NOW, 3.0, 1.0))
    queries = [ShownQuery.of(of, compared, NOW), ShownQuery.of(query(name="unasked"), None, NOW)]
    shown = Overview(RolloutRecord(state, 1, "ada", ""), {}, {}, [], [], queries=queries)
    facts = rollout_facts(overview_message(shown))
    first, second = facts["queries"]
    assert first == {
        "name": "failed",
        "state": "waiting",
        "said": "query failed: 3 to 1 is beyond its bounds (at most 2 times the incumbent's), for 0 of 10 min",
        "value": 3.0,
        "incumbent_value": 1.0,
        "fault": None,
        "asked_unix_seconds": NOW,
        "answered_unix_seconds": NOW,
        "since_unix_seconds": NOW,
    }
    assert (second["state"], second["value"], second["answered_unix_seconds"]) == ("unasked", None, None)
    caption = "\n".join(rollout_table(facts).below)
    assert first["said"] in caption
    assert "query unasked: not asked yet" in caption
