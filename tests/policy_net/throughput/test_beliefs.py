"""What holds for every model of beliefs, whatever its form."""

import json
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from beliefs_reports import reports, seen
from hypothesis import given, settings
from hypothesis import strategies as st
from states import make_job

from policy_net.domain import Allocation, JobKind, Progress
from policy_net.throughput.beliefs import Beliefs, TypeCache
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs
from policy_net.throughput.parametric import OnlineFit
from policy_net.throughput.type_belief import DEAD_AFTER_SECONDS

New = Callable[[], Beliefs]

each_belief = pytest.mark.parametrize("new", [OnlineFit, GaussianProcessBeliefs])


@each_belief
def test_types_are_learned_apart(new: New) -> None:
    beliefs = new()
    untouched = beliefs.grid("b").copy()
    beliefs.observe([seen(1, 1, 7.0)])
    assert (beliefs.grid("b") == untouched).all()


@each_belief
def test_a_cell_without_any_sample_is_dead_after_ten_minutes_and_alive_again_with_the_first(new: New) -> None:
    beliefs = new()
    beliefs.observe([seen(2, 2, 50.0), seen(3, 3, 0.0, seconds=DEAD_AFTER_SECONDS / 2)])
    assert beliefs.samples_per_second("a", 3, 3) > 0
    beliefs.observe([seen(3, 3, 0.0, seconds=DEAD_AFTER_SECONDS / 2)])
    assert beliefs.samples_per_second("a", 3, 3) == 0
    assert beliefs.samples_per_second("a", 3, 4) > 0
    beliefs.observe([seen(3, 3, 50.0)])
    assert beliefs.samples_per_second("a", 3, 3) > 0


@each_belief
def test_a_type_that_only_failed_keeps_the_prior_elsewhere(new: New) -> None:
    beliefs = new()
    beliefs.observe([seen(1, 1, 0.0)])
    expected = new().grid("a").copy()
    expected[1, 1] = 0
    assert beliefs.grid("a") == pytest.approx(expected)


@each_belief
def test_reports_that_say_nothing_about_speed_change_nothing(new: New) -> None:
    beliefs = new()
    beliefs.observe(
        [seen(0, 3, 0.0), seen(3, 0, 0.0), seen(0, 0, 0.0), seen(2, 2, 5.0, seconds=0.0), seen(2, 2, math.inf)]
    )
    assert beliefs.snapshot() == {}
    assert beliefs.allocations_seen("a") == frozenset()


@each_belief
def test_asking_does_not_change_what_is_known(new: New) -> None:
    beliefs = new()
    beliefs.grid("a")
    assert beliefs.snapshot() == {}


@each_belief
def test_the_grid_is_one_array_until_the_belief_changes_and_cannot_be_written_to(new: New) -> None:
    beliefs = new()
    beliefs.observe([seen(1, 1, 10.0)])
    grid = beliefs.grid("a")
    assert beliefs.grid("a") is grid
    with pytest.raises(ValueError, match="read-only"):
        grid[1, 1] = 3
    beliefs.observe([seen(2, 1, 11.0)])
    assert beliefs.grid("a") is not grid


@each_belief
@settings(max_examples=80, deadline=None)
@given(st.lists(reports, max_size=40))
def test_beliefs_are_finite_and_not_negative_whatever_is_reported(new: New, progress: list[Progress]) -> None:
    beliefs = new()
    for entry in progress:
        beliefs.observe([entry])
        grid = beliefs.grid(entry.job_type)
        assert np.isfinite(grid).all()
        assert (grid >= 0).all()


@each_belief
@settings(max_examples=80, deadline=None)
@given(st.lists(reports, max_size=30), st.lists(reports, max_size=30), st.booleans())
def test_a_restored_snapshot_goes_on_bit_for_bit(
    new: New, before: list[Progress], after: list[Progress], asked_in_between: bool
) -> None:
    beliefs, restored = new(), new()
    beliefs.observe(before)
    if asked_in_between:
        beliefs.grid("a")
    restored.restore(json.loads(json.dumps(beliefs.snapshot())))
    for job_type in "ab":
        assert (restored.grid(job_type) == beliefs.grid(job_type)).all()
    for model in (beliefs, restored):
        model.observe(after)
    for job_type in "ab":
        assert (restored.grid(job_type) == beliefs.grid(job_type)).all()
    assert restored.snapshot() == beliefs.snapshot()


@each_belief
def test_an_allreduce_type_is_believed_in_row_zero_only_as_soon_as_it_was_introduced(new: New) -> None:
    beliefs = new()
    beliefs.introduce([make_job(0, "ring", kind=JobKind.ALLREDUCE)])
    grid = beliefs.grid("ring")
    assert not grid[1:].any()
    assert (np.diff(grid[0, 1:9]) > 0).all()
    assert beliefs.snapshot() == {}


@each_belief
def test_a_type_keeps_the_kind_with_which_it_was_first_met(new: New) -> None:
    beliefs = new()
    beliefs.introduce([make_job(0, "a"), make_job(1, "a", kind=JobKind.ALLREDUCE)])
    beliefs.observe([seen(0, 4, 50.0), seen(2, 2, 50.0)])
    assert beliefs.allocations_seen("a") == {Allocation(2, 2)}
    assert not beliefs.grid("a")[0].any()


@each_belief
def test_the_kind_of_an_observed_type_survives_a_snapshot(new: New) -> None:
    beliefs, restored = new(), new()
    beliefs.observe([seen(0, 4, 50.0)])
    restored.restore(json.loads(json.dumps(beliefs.snapshot())))
    assert (restored.grid("a") == beliefs.grid("a")).all()
    assert restored.grid("a")[0, 4] > 0


class Speeds:
    """A model of one type."""

    def __init__(self) -> None:
        self.latest = np.ones((17, 17))

    def grid(self, job_type: str) -> np.ndarray:
        del job_type
        return self.latest

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        return float(self.grid(job_type)[ps, workers])


def test_a_thing_is_made_once_per_type_and_caps_and_anew_when_the_speeds_change() -> None:
    speeds = Speeds()
    made: list[tuple[int, int, Allocation]] = []

    def make(grid: np.ndarray, max_ps: int, max_workers: int, smallest: Allocation) -> int:
        assert grid is speeds.latest
        made.append((max_ps, max_workers, smallest))
        return len(made)

    cache = TypeCache(speeds, make)
    job = make_job(0, "a")
    assert cache.of(job) == cache.of(replace(job, job_id="another")) == 1
    assert cache.of(replace(job, max_workers=job.max_workers - 1)) == 2
    assert cache.of(job) == 1
    assert made[0] == (job.max_ps, job.max_workers, job.smallest)
    speeds.latest = speeds.latest.copy()
    assert cache.of(job) == 3
