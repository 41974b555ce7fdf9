from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from speed_tables import table
from states import make_job

from policy_net.baselines.hull import FAIRNESS_EXPONENT, HullCache, split_hull
from policy_net.domain import Allocation
from policy_net.laboratory.speeds.speed import TableSpeedModel

grids = arrays.arrays(np.float64, (16, 16), elements=st.just(0.0) | st.floats(1e-3, 1e6)).map(
    lambda inner: np.pad(inner, ((1, 0), (1, 0)))
)


def utility(speed: float) -> float:
    return speed**FAIRNESS_EXPONENT / FAIRNESS_EXPONENT


def test_a_split_that_only_pays_off_later_is_stepped_over() -> None:
    hull = split_hull(table(a={(1, 1): 1, (2, 1): 1.01, (2, 2): 16}).grid("a"), 16, 16)
    # 1+1 is worth 4 and 2+2 is worth 8: the line from nothing to 2+2 passes 1+1 at 4, so 2+2 is one step.
    assert [(step.start, step.end, step.slope) for step in hull.segments] == [
        (Allocation(0, 0), Allocation(2, 2), pytest.approx(2.0))
    ]


def test_splits_list_the_fastest_first_and_nothing_that_less_beats() -> None:
    grid = table(a={(1, 1): 1, (2, 1): 3, (1, 2): 2, (3, 1): 3, (2, 2): 2.5}).grid("a")
    assert split_hull(grid, 16, 16).splits == (Allocation(1, 2), Allocation(2, 1), Allocation(1, 1))


def test_caps_cut_the_hull() -> None:
    grid = table(a={(1, 1): 1, (2, 1): 16, (1, 2): 81}).grid("a")
    assert split_hull(grid, 2, 1).splits == (Allocation(1, 2), Allocation(1, 1))
    assert split_hull(grid, 0, 16).segments == ()


def test_a_minimum_takes_the_smaller_splits_away() -> None:
    grid = table(a={(1, 1): 1, (2, 1): 16, (1, 2): 4, (2, 3): 81}).grid("a")
    hull = split_hull(grid, 16, 16, Allocation(workers=2, ps=1))
    assert hull.splits == (Allocation(3, 2), Allocation(2, 1))
    assert hull.segments[0].start == Allocation(0, 0)
    assert split_hull(grid, 16, 1, Allocation(workers=2, ps=1)).segments == ()


def test_a_type_without_servers_has_a_hull_of_workers() -> None:
    hull = split_hull(table(a={(0, 1): 1, (0, 2): 9, (0, 3): 8}).grid("a"), 0, 16)
    assert hull.splits == (Allocation(2, 0), Allocation(1, 0))
    assert [step.end for step in hull.segments] == [Allocation(1, 0), Allocation(2, 0)]


def test_a_type_that_cannot_train_has_no_hull() -> None:
    assert split_hull(np.zeros((17, 17)), 16, 16).segments == ()


@given(grids)
def test_slopes_fall_and_the_last_corner_is_the_fastest_split(grid: np.ndarray) -> None:
    _check_slopes(grid)


def test_of_two_speeds_a_rounding_step_apart_the_larger_is_the_last_corner_though_it_gains_nothing() -> None:
    grid = np.zeros((17, 17))
    grid[1, 1], grid[1, 2] = 1.0, np.nextafter(1.0, 2.0)
    _check_slopes(grid)
    assert [step.slope for step in split_hull(grid, 16, 16).segments] == [2.0, 0.0]


def _check_slopes(grid: np.ndarray) -> None:
    hull = split_hull(grid, 16, 16)
    slopes = [step.slope for step in hull.segments]
    assert all(later < earlier for earlier, later in pairwise(slopes))
    if slopes:
        last = hull.segments[-1]
        fastest = grid[last.end.ps, last.end.workers]
        assert fastest == grid.max()
        # The root of two speeds that differ in their last digits alone may be one number.
        assert slopes[-1] > 0 or utility(grid[last.start.ps, last.start.workers]) == utility(fastest)


@given(grids)
def test_no_split_lies_above_the_hull(grid: np.ndarray) -> None:
    hull = split_hull(grid, 16, 16)
    tasks = [0] + [step.end.tasks for step in hull.segments]
    heights = [0.0] + [utility(grid[step.end.ps, step.end.workers]) for step in hull.segments]
    for ps in range(1, 17):
        for workers in range(1, 17):
            height = np.interp(ps + workers, tasks, heights)
            assert utility(grid[ps, workers]) <= height * (1 + 1e-9)


def test_hulls_follow_the_speed_model() -> None:
    class Changing:
        model = table(a={(1, 1): 1})

        def grid(self, job_type: str) -> np.ndarray:
            return self.model.grid(job_type)

        def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
            return self.model.samples_per_second(job_type, ps, workers)

    speeds = Changing()
    cache = HullCache(speeds)
    job = make_job(0, "a")
    first = cache.of(job)
    assert cache.of(job) is first
    speeds.model = TableSpeedModel({"a": 2 * speeds.model.grid("a")}, "a test")
    assert cache.of(job).segments[0].slope > first.segments[0].slope
