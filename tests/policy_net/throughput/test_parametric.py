import json

import numpy as np
import pytest
from beliefs_reports import seen
from hypothesis import given, settings
from hypothesis import strategies as st
from states import make_job

from policy_net.domain import Allocation, JobKind
from policy_net.errors import BadInput
from policy_net.throughput.form import FORMS
from policy_net.throughput.parametric import MeasuredFit, OnlineFit, SpeedPoint


def true_speed(ps: int, workers: int) -> float:
    """A type that has exactly the fitted form: 10 ms × (0.5/w + 0.2 + 0.25 w/p + 0.05 w)."""
    return 100 / (0.5 / workers + 0.2 + 0.25 * workers / ps + 0.05 * workers)


EVERYWHERE = [(ps, workers) for ps in range(1, 17) for workers in range(1, 17)]


def test_an_unseen_type_is_believed_to_gain_from_both_roles_with_diminishing_returns() -> None:
    grid = OnlineFit().grid("never-seen")
    assert grid.shape == (17, 17)
    assert not grid[0].any()
    assert not grid[:, 0].any()
    by_ps = grid[1:, 1]
    assert (np.diff(by_ps) > 0).all()
    assert (np.diff(by_ps, 2) < 0).all()
    assert grid[8, 4] > grid[8, 1] > grid[1, 1]
    assert grid[1, 1] == pytest.approx(FORMS[JobKind.PS].prior.samples_per_second)


def test_one_observation_sets_the_scale_of_a_type() -> None:
    beliefs = OnlineFit()
    before = beliefs.grid("a")
    beliefs.observe([seen(4, 2, 20 * float(before[4, 2]))])
    assert beliefs.grid("a")[4, 2] == pytest.approx(20 * before[4, 2], rel=1e-6)
    assert beliefs.grid("a")[9, 3] == pytest.approx(20 * before[9, 3], rel=1e-6)


def test_a_type_of_the_fitted_form_is_learned_from_a_few_allocations() -> None:
    beliefs = OnlineFit()
    for ps, workers in [(1, 1), (2, 1), (1, 4), (4, 4), (16, 2), (8, 12)]:
        beliefs.observe([seen(ps, workers, true_speed(ps, workers)) for _ in range(20)])
    errors = [abs(beliefs.samples_per_second("a", *cell) / true_speed(*cell) - 1) for cell in EVERYWHERE]
    assert max(errors) < 0.03


def test_noise_averages_out() -> None:
    generator = np.random.default_rng(7)
    beliefs = OnlineFit()
    for _ in range(400):
        ps, workers = (int(count) for count in generator.integers(1, 17, 2))
        beliefs.observe([seen(ps, workers, true_speed(ps, workers) * generator.lognormal(-(0.27**2) / 2, 0.27))])
    errors = [abs(beliefs.samples_per_second("a", *cell) / true_speed(*cell) - 1) for cell in EVERYWHERE]
    assert np.median(errors) < 0.05


def test_coefficients_are_never_negative() -> None:
    beliefs = OnlineFit()
    # Faster than linear in both roles: an unconstrained fit would need negative terms.
    beliefs.observe([seen(ps, workers, float(ps**2 * workers**2)) for ps in (1, 2, 4) for workers in (1, 2, 4)])
    beliefs.grid("a")
    assert min(beliefs.beliefs_by_type()["a"].coefficients) >= 0


@pytest.mark.parametrize(
    "damaged",
    [
        {"a": 3},
        {"a": {"cells": [], "refit_at": 0}},
        {"a": {"cells": [], "coefficients": [1.0], "refit_at": 0}},
        {"a": {"cells": [[1, 17, 1.0, 1.0, 1]], "coefficients": [1.0] * 5, "refit_at": 0}},
        {"a": {"cells": [[1, 1, "fast", 1.0, 1]], "coefficients": [1.0] * 5, "refit_at": 0}},
        {"a": {"cells": [[1, 1, 1.0]], "coefficients": [1.0] * 5, "refit_at": 0}},
        {"a": {"kind": "ring", "cells": [], "coefficients": [1.0] * 5, "refit_at": 9}},
        {"a": {"kind": "allreduce", "cells": [[1, 1, 1.0, 1.0, 1]], "coefficients": [1.0] * 3, "refit_at": 9}},
        {"a": {"cells": [], "coefficients": [-1.0] * 5, "refit_at": 9}},
        {"a": {"cells": [], "coefficients": [float("nan")] * 5, "refit_at": 9}},
        {"a": {"cells": [], "coefficients": [0.0] * 5, "refit_at": 9}},
        {"a": {"cells": [[1, 1, float("inf"), 1.0, 1]], "coefficients": [1.0] * 5, "refit_at": 0}},
    ],
)
def test_a_damaged_snapshot_is_refused_and_changes_nothing(damaged: dict) -> None:
    beliefs = OnlineFit()
    beliefs.observe([seen(2, 2, 10.0)])
    before = beliefs.snapshot()
    with pytest.raises(BadInput, match="not a snapshot of speed beliefs"):
        beliefs.restore(damaged)
    assert beliefs.snapshot() == before


def allreduce_speed(workers: int) -> float:
    """10 ms × (0.8/w + 0.18 + 0.02 w)."""
    return 100 / (0.8 / workers + 0.18 + 0.02 * workers)


def test_an_allreduce_type_is_learned_from_a_few_allocations_introduced_or_not() -> None:
    introduced, observed = OnlineFit(), OnlineFit()
    introduced.introduce([make_job(0, "ring", kind=JobKind.ALLREDUCE)])
    for beliefs in (introduced, observed):
        for workers in (1, 4, 8, 12):
            beliefs.observe([seen(0, workers, allreduce_speed(workers), job_type="ring") for _ in range(20)])
        for workers in range(1, 17):
            assert beliefs.samples_per_second("ring", 0, workers) == pytest.approx(allreduce_speed(workers), rel=0.03)
        assert not beliefs.grid("ring")[1:].any()
    assert observed.snapshot() == introduced.snapshot()
    assert observed.allocations_seen("ring") == {Allocation(workers) for workers in (1, 4, 8, 12)}


def test_an_asynchronous_type_has_a_form_of_its_own() -> None:
    beliefs = OnlineFit()
    beliefs.introduce([make_job(0, "loose", kind=JobKind.ASYNC)])
    for ps, workers in [(1, 1), (2, 1), (1, 4), (4, 4), (16, 2), (8, 12)]:
        speed = 100 / (0.6 / workers + 0.4 / ps)
        beliefs.observe([seen(ps, workers, speed, job_type="loose") for _ in range(20)])
    assert beliefs.samples_per_second("loose", 16, 16) == pytest.approx(1600, rel=0.1)


def test_a_snapshot_from_before_there_were_kinds_is_of_parameter_server_types() -> None:
    beliefs, restored = OnlineFit(), OnlineFit()
    beliefs.observe([seen(2, 2, 50.0)])
    old = json.loads(json.dumps(beliefs.snapshot()))
    del old["a"]["kind"]
    restored.restore(old)
    assert (restored.grid("a") == beliefs.grid("a")).all()


points = st.lists(
    st.builds(SpeedPoint, st.integers(1, 16), st.integers(1, 16), st.just(0.0) | st.floats(1e-3, 1e6)), max_size=40
)


@settings(max_examples=60, deadline=None)
@given(points)
def test_a_fit_to_any_points_is_positive_wherever_the_type_can_train_or_is_refused(given_points) -> None:
    usable = sum(point.samples_per_second > 0 for point in given_points)
    if usable < 5:
        with pytest.raises(BadInput, match=f"'a' has {usable} points with a speed above 0"):
            MeasuredFit({"a": given_points}, "a test")
        return
    fit = MeasuredFit({"a": given_points}, "a test")
    grid = fit.grid("a")
    assert np.isfinite(grid).all()
    assert (grid[1:, 1:] > 0).all()
    assert not grid[0].any()
    assert not grid[:, 0].any()


@settings(max_examples=40, deadline=None)
@given(points.filter(lambda chosen: sum(point.samples_per_second > 0 for point in chosen) >= 5), st.floats(0.01, 100))
def test_a_type_that_is_so_many_times_faster_is_believed_to_be_so_many_times_faster(chosen, factor: float) -> None:
    faster = [SpeedPoint(point.ps, point.workers, point.samples_per_second * factor) for point in chosen]
    slow, fast = (MeasuredFit({"a": one}, "a test").grid("a") for one in (chosen, faster))
    assert fast == pytest.approx(slow * factor, rel=1e-6)
