import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_net.errors import BadInput
from policy_net.set_policy.beliefs import Lifetimes
from policy_net.set_policy.sessions import BINS, FIRST_EDGE_SECONDS, PRIOR_JOBS

HOUR = 3600.0
HALF_YEAR = 180 * 24 * HOUR


def after(seconds: list[float]) -> Lifetimes:
    """Lifetimes that saw jobs of these lengths, one after another, each from its start."""
    lifetimes = Lifetimes()
    for number, length in enumerate(seconds):
        lifetimes.on_jobs_present({f"job-{number}": (0.0, 2.0)})
        lifetimes.on_job_ended(f"job-{number}", 2.0 * length)
    lifetimes.on_jobs_present({})
    return lifetimes


def test_before_jobs_have_ended_who_has_trained_longer_is_expected_to_go_on_for_longer() -> None:
    ranks = [Lifetimes().rank_seconds(seconds) for seconds in (0.0, 60.0, HOUR, 10 * HOUR, 100 * HOUR)]
    assert ranks == sorted(ranks)
    # A Pareto tail with exponent 1: half of those that have trained so long end within as much again.
    assert HOUR / 2 < ranks[2] < 3 * HOUR


def test_where_all_jobs_last_alike_who_has_trained_longer_is_nearer_to_the_end() -> None:
    lifetimes = after([10 * HOUR] * 200)
    ranks = [lifetimes.rank_seconds(hours * HOUR) for hours in (1.0, 4.0, 8.0)]
    assert ranks == sorted(ranks, reverse=True)
    assert ranks[0] == pytest.approx(9 * HOUR, rel=0.3)
    # Whoever outlasts them all is a stranger again.
    assert lifetimes.rank_seconds(40 * HOUR) > ranks[0]


def test_two_lengths_make_two_ranks_and_the_short_ones_are_tried_first() -> None:
    lifetimes = after([60.0, 10 * HOUR] * 1000)
    fresh, over_the_short = lifetimes.rank_seconds(0.0), lifetimes.rank_seconds(300.0)
    assert fresh < 600.0
    assert over_the_short == pytest.approx(10 * HOUR, rel=0.3)


def test_a_rank_is_what_the_definition_says() -> None:
    """Against a literal search over all times to stop at, with the hazards of one bin known to be certain."""
    lifetimes = after([1000.0] * 50)
    edges = [FIRST_EDGE_SECONDS * 1.5**index for index in range(BINS)]
    starts = [0.0, *edges[:-1]]
    hazards = []
    for index, (start, edge) in enumerate(zip(starts, edges, strict=True)):
        reached = 50 if start < 1000.0 else 0
        ended = 50 if start < 1000.0 <= edge else 0
        prior = 0.1 if index == 0 else 1.0 - 1.0 / 1.5
        hazards.append((ended + PRIOR_JOBS * prior) / (reached + PRIOR_JOBS) if index < BINS - 1 else 1.0)
    first = 5
    reached, trained, ends, best = 1.0, 0.0, 0.0, float("inf")
    for index in range(first, BINS):
        trained += reached * (edges[index] - starts[index]) * (1.0 - hazards[index] / 2.0)
        ends += reached * hazards[index]
        best = min(best, trained / ends)
        reached *= 1.0 - hazards[index]
    assert lifetimes.rank_seconds(starts[first]) == pytest.approx(best)


def test_jobs_that_go_on_and_jobs_that_were_withdrawn_count_as_having_lasted() -> None:
    """Otherwise a cluster whose long jobs have not ended yet would believe that all jobs are short."""
    only_short = after([60.0] * 20)
    going_on, withdrawn = after([60.0] * 20), after([60.0] * 20)
    crowd = {f"long-{number}": (2.0 * 10 * HOUR, 2.0) for number in range(20)}
    going_on.on_jobs_present(crowd)
    withdrawn.on_jobs_present(crowd)
    withdrawn.on_jobs_present({})
    assert going_on.rank_seconds(60.0) == withdrawn.rank_seconds(60.0) > only_short.rank_seconds(60.0)


def test_whatever_is_learned_changes_the_digest() -> None:
    lifetimes, seen = Lifetimes(), set()
    for change in (
        lambda: None,
        lambda: lifetimes.on_jobs_present({"a": (0.0, 1.0)}),
        lambda: lifetimes.on_jobs_present({"a": (1.0, 1.0)}),
        lambda: lifetimes.on_job_ended("a", HOUR),
        lambda: lifetimes.on_jobs_present({"b": (HOUR, 1.0)}),
        lambda: lifetimes.on_jobs_present({}),
    ):
        change()
        seen.add(lifetimes.digest())
    assert len(seen) == 6


def test_a_job_that_nobody_attended_to_says_nothing() -> None:
    lifetimes = after([HOUR])
    before = lifetimes.snapshot()
    lifetimes.on_job_ended("stranger", 1e9)
    assert lifetimes.snapshot() == before


lengths = st.lists(st.floats(0.0, HALF_YEAR), max_size=30)


@given(lengths, st.lists(st.floats(0.0, 10 * HALF_YEAR), max_size=5), st.floats(0.0, 10 * HALF_YEAR))
def test_ranks_are_above_zero_and_finite_whatever_was_seen(
    ended: list[float], present: list[float], attained: float
) -> None:
    lifetimes = after(ended)
    lifetimes.on_jobs_present({str(number): (seconds, 1.0) for number, seconds in enumerate(present)})
    rank = lifetimes.rank_seconds(attained)
    assert 0.0 < rank < float("inf")


@given(lengths, lengths, st.floats(0.0, HALF_YEAR))
def test_a_snapshot_goes_on_bit_for_bit(before: list[float], later: list[float], attained: float) -> None:
    lifetimes = after(before)
    lifetimes.on_jobs_present({"here": (7.0, 3.0)})
    restored = Lifetimes.restored(json.loads(json.dumps(lifetimes.snapshot())))
    assert restored.digest() == lifetimes.digest()
    for either in (lifetimes, restored):
        for number, seconds in enumerate(later):
            either.on_jobs_present({"here": (8.0, 3.0), str(number): (0.0, 1.0)})
            either.on_job_ended(str(number), seconds)
        either.on_job_ended("here", 1.0)
    assert restored.snapshot() == lifetimes.snapshot()
    assert restored.rank_seconds(attained) == lifetimes.rank_seconds(attained)


GOOD = Lifetimes().snapshot()


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        {},
        {**GOOD, "ended": [1.0]},
        {**GOOD, "passed": [float("nan")] * BINS},
        {**GOOD, "passed": [-1.0] * BINS},
        {**GOOD, "present": [["a", 1.0]]},
        {**GOOD, "present": [["a", -1.0, 1.0]]},
        {**GOOD, "present": [["a", 1.0, 0.0]]},
        {**GOOD, "present": 3},
    ],
)
def test_what_is_no_snapshot_is_refused(bad: object) -> None:
    with pytest.raises(BadInput, match="not a snapshot of lifetimes"):
        Lifetimes.restored(bad)


def test_bins_cover_what_jobs_take() -> None:
    assert FIRST_EDGE_SECONDS * np.prod([1.5] * (BINS - 1)) > HALF_YEAR / 2


def test_jobs_that_are_forgotten_have_neither_ended_nor_been_withdrawn() -> None:
    known, others = after([10.0, 20.0]), after([10.0, 20.0])
    known.on_jobs_present({"there": (5.0, 1.0)})
    known.forget_jobs()
    assert known.snapshot() == others.snapshot()
