"""Range of an answer: which cases there are, in which order, and what is said of them."""

from policy_net.errors import BadInput
from policy_net.laboratory.report.spread import (
    KIND,
    KINDS,
    MODELS,
    STALLS,
    STALLS_SECONDS,
    AssumedCase,
    Assumptions,
    spread_of,
    usual_cases,
)
from policy_net.laboratory.workloads.workload import JobKindChoice

BASE = AssumedCase(JobKindChoice.ALLREDUCE, 7, (0.0, 0.0))


def test_every_assumption_is_changed_by_itself_first_and_then_with_the_others() -> None:
    cases = list(Assumptions(BASE).cases())
    assert len(cases) == len(set(cases)) == len(KINDS) * 3 * len(STALLS_SECONDS) - 1
    changed = [sum((case.kind != BASE.kind, case.seed != 7, case.stall_seconds != (0.0, 0.0))) for case in cases]
    assert changed[:6] == [1] * 6
    assert min(changed[6:]) == 2
    shares = list(Assumptions(BASE, elastic_shares=(1.0, 0.5)).cases())
    assert len(shares) == 2 * (len(cases) + 1) - 1
    assert shares[6] == AssumedCase(BASE.kind, BASE.seed, BASE.stall_seconds, elastic_share=0.5)
    assert {case.seed for case in cases} == {7, 8, 9}


def test_what_the_user_said_is_not_changed() -> None:
    stall = (5.0, 7.0)
    said = Assumptions(AssumedCase(JobKindChoice.MIX, 0, stall), (JobKindChoice.MIX,), (stall,))
    assert list(said.each) == [MODELS]
    assert {(case.kind, case.stall_seconds) for case in said.cases()} == {(JobKindChoice.MIX, stall)}
    assert list(Assumptions(BASE).each) == [KIND, MODELS, STALLS]


def test_the_number_of_cases_follows_from_the_jobs_alone() -> None:
    assert usual_cases(1_000, compiled=True) >= 53
    assert usual_cases(100_000, compiled=True) == 7
    assert (usual_cases(1_000, compiled=False), usual_cases(5_000, compiled=False)) == (3, 0)


def test_the_range_is_that_of_all_cases_and_says_which_assumption_moves_it_most() -> None:
    tried: list[AssumedCase] = []

    def change(case: AssumedCase) -> float:
        tried.append(case)
        return -0.5 + 0.1 * KINDS.index(case.kind) - 0.01 * (case.seed - BASE.seed)

    spread = spread_of(-0.5, Assumptions(BASE), change, 10)
    assert tried == list(Assumptions(BASE).cases())[:10]
    assert (len(spread.changes), spread.planned) == (11, 27)
    assert spread.least <= spread.changes[BASE] <= spread.most
    assert spread.moved_most_by == (KIND, tuple((case, spread.changes[case]) for case in Assumptions(BASE).each[KIND]))


def test_a_case_that_cannot_be_replayed_is_left_out_and_told() -> None:
    def change(case: AssumedCase) -> float:
        if case.kind is JobKindChoice.PS:
            raise BadInput("no speeds of servers")
        return -0.25

    done: list[float] = []
    spread = spread_of(-0.5, Assumptions(BASE), change, 2, done.append)
    assert spread.failed == "no speeds of servers"
    assert {case.kind for case in spread.changes} == {JobKindChoice.ALLREDUCE, JobKindChoice.ASYNC}
    assert done == [0.5, 1.0]
    nothing = spread_of(-0.5, Assumptions(BASE), change, 0)
    assert (nothing.changes, nothing.moved_most_by) == ({BASE: -0.5}, None)
