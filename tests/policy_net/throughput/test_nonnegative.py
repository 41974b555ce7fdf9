"""Fits end with an answer, whatever was seen: by search, and in the cases that were found."""

import itertools
import sys

import numpy as np
import pytest
from beliefs_reports import seen
from hypothesis import given, settings
from hypothesis import strategies as st

from policy_net.domain import Allocation, JobKind, Progress
from policy_net.exchange.statistics import LARGEST_LOG_SPEED, SpeedStatistic
from policy_net.throughput.fleet_priors import merge_fleet
from policy_net.throughput.form import FORMS
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs
from policy_net.throughput.nonnegative import MOST_UNKNOWNS, NoFit, best_of_all_sets, nonnegative_fit
from policy_net.throughput.parametric import OnlineFit

LONG_WAY = (
    np.array(
        [
            [4.742266060842188, 14.61003195283889, 24.8698920683503, 56.558260793327165, 66.12959921553072],
            [0.0, 7.400086956075814, 12.35588387208589, 49.689558899469276, 51.510078314171366],
            [0.0, 0.0, 21.794832714723153, -4.718294509786623, -49.87712000737156],
            [0.0, 0.0, 0.0, 17.893038337167535, 21.57735349634863],
            [0.0, 0.0, 0.0, 0.0, 35.24042554730266],
        ]
    ),
    np.array([13.701397407710912, 3.4297974353089806, -0.1255168875169091, 1.4182950441297155, -0.15700491187106713]),
)
"""A fit amid a replay for which scipy 1.17's `nnls` needs one step more than it takes; its condition number is 100."""


def is_best(matrix: np.ndarray, target: np.ndarray, solution: np.ndarray) -> bool:
    """The conditions of Karush, Kuhn and Tucker, to rounding."""
    slope = matrix.T @ (target - matrix @ solution)
    size = np.linalg.norm(matrix, axis=0) * np.linalg.norm(target) + 1e-300
    return bool(
        (solution >= 0).all()
        and (slope <= 1e-9 * size).all()
        and (np.abs(slope[solution > 0]) <= 1e-9 * size[solution > 0]).all()
    )


def test_a_problem_at_which_scipys_solver_gives_up_has_its_answer() -> None:
    assert is_best(*LONG_WAY, nonnegative_fit(*LONG_WAY))


def test_problems_like_it_have_their_answers() -> None:
    """Scipy 1.17 gives up at six of these."""
    matrix, target = LONG_WAY
    for seed in range(2000):
        generator = np.random.default_rng(seed)
        near = matrix * (1 + 0.3 * generator.normal(size=matrix.shape))
        wanted = target * (1 + 0.3 * generator.normal(size=target.shape))
        assert is_best(near, wanted, nonnegative_fit(near, wanted)), seed


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 8), st.floats(-6, 6))
def test_trying_every_set_finds_the_best_fit(seed: int, unknowns: int, rows: int, exponent: float) -> None:
    generator = np.random.default_rng(seed)
    matrix = generator.normal(size=(rows + unknowns, unknowns)) * 10.0 ** (exponent * generator.random(unknowns))
    target = generator.normal(size=rows + unknowns)
    assert is_best(matrix, target, best_of_all_sets(matrix, target))


@given(st.integers(0, 2**32 - 1), st.integers(2, 5))
def test_where_columns_repeat_there_is_an_answer_too(seed: int, unknowns: int) -> None:
    generator = np.random.default_rng(seed)
    matrix = np.repeat(generator.random((unknowns + 1, 1)), unknowns, axis=1)
    target = generator.random(unknowns + 1)
    assert is_best(matrix, target, nonnegative_fit(matrix, target))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_problem_that_is_not_finite_is_refused_by_name(value: float) -> None:
    with pytest.raises(NoFit):
        nonnegative_fit(np.array([[1.0, value]]), np.ones(1))
    with pytest.raises(NoFit):
        nonnegative_fit(np.eye(2), np.array([1.0, value]))


def test_more_unknowns_than_can_be_tried_are_refused() -> None:
    with pytest.raises(ValueError, match="11 unknowns"):
        nonnegative_fit(np.eye(MOST_UNKNOWNS + 1), np.ones(MOST_UNKNOWNS + 1))


figures = st.floats(1e-9, 1e9) | st.floats(sys.float_info.min * sys.float_info.epsilon, sys.float_info.max)
"""What a cluster reports, and what a broken one may."""


@st.composite
def histories(draw: st.DrawFn) -> list[Progress]:
    kind = draw(st.sampled_from(list(FORMS)))
    servers = st.integers(1, 16) if kind.uses_ps else st.just(0)
    rows = st.tuples(servers, st.integers(1, 16), figures | st.just(0.0), figures)
    return [
        Progress("job", kind.value, Allocation(workers, ps), seconds, samples, 1.0, 1.0)
        for ps, workers, samples, seconds in draw(st.lists(rows, min_size=1, max_size=12))
    ]


@settings(max_examples=150)
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("beliefs_of", [OnlineFit, GaussianProcessBeliefs])
@given(history=histories())
def test_whatever_was_seen_every_speed_is_a_number_and_can_be_kept(
    beliefs_of: type[OnlineFit], history: list[Progress]
) -> None:
    beliefs = beliefs_of()
    for entry in history:
        beliefs.observe([entry])
        assert np.isfinite(beliefs.grid(entry.job_type)).all()
    beliefs.statistics()
    again = beliefs_of()
    again.restore(beliefs.snapshot())
    assert (again.grid(history[0].job_type) == beliefs.grid(history[0].job_type)).all()


@st.composite
def reports_of(draw: st.DrawFn, kind: JobKind) -> list[SpeedStatistic]:
    servers = st.integers(1, 16) if kind.uses_ps else st.just(0)
    speeds = st.floats(-LARGEST_LOG_SPEED, LARGEST_LOG_SPEED) | st.floats(40.0, LARGEST_LOG_SPEED)
    cells = draw(st.dictionaries(st.tuples(servers, st.integers(1, 16)), speeds, min_size=1, max_size=8))
    counts = st.sampled_from([1, 16, 10**9])
    return [SpeedStatistic("a", kind, ps, workers, speed, draw(counts)) for (ps, workers), speed in cells.items()]


@pytest.mark.heavy
@settings(max_examples=150)
@pytest.mark.filterwarnings("error::RuntimeWarning")
@given(st.data(), st.sampled_from(list(JobKind)))
def test_whatever_clusters_report_it_can_be_merged_and_believed(data: st.DataObject, kind: JobKind) -> None:
    reports = data.draw(st.dictionaries(st.sampled_from("pqrstu"), reports_of(kind), min_size=1, max_size=6))
    merged = merge_fleet(reports, data.draw(reports_of(kind)))
    for statistics in (merged.statistics, *reports.values()):
        beliefs = GaussianProcessBeliefs(statistics)
        assert np.isfinite(beliefs.grid("a")).all()
        median, deviation = beliefs.posterior("a")
        assert np.isfinite(median).all()
        assert np.isfinite(deviation).all()


def test_a_base_that_is_shifted_beyond_what_can_be_said_stays_within_it() -> None:
    def rows(level: float, cells: list[tuple[int, int]], slope: float = 0.0) -> list[SpeedStatistic]:
        return [
            SpeedStatistic("a", JobKind.PS, ps, w, level + slope * index, 16) for index, (ps, w) in enumerate(cells)
        ]

    cells = list(itertools.product((1, 2), (1, 2)))
    merged = merge_fleet({"b": rows(49.9, cells)}, [*rows(10.0, cells), *rows(10.4, [(4, 4)])])
    assert max(entry.mean_log_speed for entry in merged.statistics) <= LARGEST_LOG_SPEED


def test_reports_that_add_up_beyond_all_numbers_are_kept_and_read_again() -> None:
    beliefs = OnlineFit()
    for _ in range(3):
        beliefs.observe([seen(1, 1, 1e304, seconds=1e4)])
        beliefs.observe([seen(1, 1, 1e-300, seconds=1e308)])
    again = OnlineFit()
    again.restore(beliefs.snapshot())
    assert np.isfinite(again.grid("a")).all()
