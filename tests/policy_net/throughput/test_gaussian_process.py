import json
import math

import numpy as np
import pytest
from beliefs_reports import reports, seen
from hypothesis import given, settings
from hypothesis import strategies as st
from states import make_job

from policy_net.domain import Allocation, JobKind, Progress
from policy_net.errors import BadInput
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.throughput.form import FORMS
from policy_net.throughput.gaussian_process import MOST_DOUBTED, OPTIMISM, GaussianProcessBeliefs, TypeProcess
from policy_net.throughput.parametric import OnlineFit

CELLS = [(1, 1), (2, 1), (1, 4), (4, 4), (16, 2), (8, 12), (8, 1), (2, 8)]


def bumpy_speed(ps: int, workers: int) -> float:
    """Falls beyond four workers, and every fifth server costs: of no such form as the parametric fit knows."""
    return 100 * ps**0.4 * math.exp(-((math.log(workers / 4)) ** 2) / 3) * (0.85 if ps % 5 == 0 else 1.0)


def after(cells: list[tuple[int, int]], times: int = 1) -> GaussianProcessBeliefs:
    beliefs = GaussianProcessBeliefs()
    for cell in cells:
        beliefs.observe([seen(*cell, bumpy_speed(*cell)) for _ in range(times)])
    return beliefs


def error(beliefs: GaussianProcessBeliefs | OnlineFit) -> float:
    """Mean absolute log error over all cells, without the optimism."""
    speeds = beliefs.posterior("a")[0] if isinstance(beliefs, GaussianProcessBeliefs) else beliefs.grid("a")
    truth = np.array([[bumpy_speed(ps, workers) for workers in range(1, 17)] for ps in range(1, 17)])
    return float(np.abs(np.log(speeds[1:, 1:] / truth)).mean())


def test_an_unseen_type_is_believed_to_be_as_the_prior_says() -> None:
    assert GaussianProcessBeliefs().grid("a") == pytest.approx(OnlineFit().grid("a"))


def test_a_shape_that_the_form_does_not_have_is_learned() -> None:
    fit = OnlineFit()
    everywhere = [(ps, workers) for ps in range(1, 17, 2) for workers in range(1, 17, 2)]
    for cell in everywhere:
        fit.observe([seen(*cell, bumpy_speed(*cell)) for _ in range(10)])
    process = after(everywhere, times=10)
    assert error(process) < 0.06
    assert error(process) < 0.6 * error(fit)


def test_more_observations_bring_the_belief_closer() -> None:
    assert error(after(CELLS, times=5)) < error(after(CELLS[:4], times=5)) < error(after(CELLS[:1], times=5))


def test_a_belief_stands_the_optimism_above_its_median_and_comes_down_with_observations() -> None:
    beliefs = after(CELLS)
    median, sd = beliefs.posterior("a")
    raised = beliefs.grid("a")
    assert raised[1:, 1:] == pytest.approx(median[1:, 1:] * np.exp(OPTIMISM * sd[1:, 1:]))
    certain = after(CELLS, times=100)
    assert certain.posterior("a")[1][4, 4] < sd[4, 4] / 2
    assert certain.grid("a")[4, 4] == pytest.approx(bumpy_speed(4, 4), rel=0.05)


def test_what_is_far_from_every_observation_is_least_certain() -> None:
    _, sd = after([(1, 1), (2, 1), (1, 2)], times=20).posterior("a")
    assert sd[1, 1] < sd[2, 2] < sd[4, 4] < sd[16, 16]


def test_an_odd_cell_is_believed_to_be_odd_and_hardly_its_neighbours() -> None:
    cells = [(ps, 2) for ps in range(1, 17) if ps != 5]
    plain, odd = GaussianProcessBeliefs(), GaussianProcessBeliefs()
    for beliefs in (plain, odd):
        beliefs.observe([seen(ps, 2, 100.0) for ps, _ in cells for _ in range(50)])
    plain.observe([seen(5, 2, 100.0)] * 50)
    odd.observe([seen(5, 2, 80.0)] * 50)
    changed = odd.posterior("a")[0][:, 2] / np.maximum(plain.posterior("a")[0][:, 2], 1e-9)
    assert changed[5] < 0.85
    assert (changed[[3, 4, 6, 7]] > 0.93).all()


def test_an_allreduce_type_has_a_posterior_in_row_zero_only() -> None:
    beliefs = GaussianProcessBeliefs()
    beliefs.introduce([make_job(0, "ring", kind=JobKind.ALLREDUCE)])
    beliefs.observe([seen(0, 4, 300.0, job_type="ring")])
    median, sd = beliefs.posterior("ring")
    assert median[0, 4] == pytest.approx(300.0, rel=0.05)
    assert median.shape == sd.shape == (1, 65)
    assert (sd[0, 1:17] > 0).all()


def test_what_many_workers_give_is_believed_where_a_job_may_have_them_and_changes_nothing_else() -> None:
    few, many = make_job(0, "ring", kind=JobKind.ALLREDUCE), make_job(1, "ring", kind=JobKind.ALLREDUCE, max_workers=64)
    priors = tuple(SpeedStatistic("ring", JobKind.ALLREDUCE, 0, workers, 5.0 + workers / 9, 4) for workers in (3, 12))
    for reported in ((), priors):
        plain, wide = GaussianProcessBeliefs(reported), GaussianProcessBeliefs(reported)
        plain.introduce([few])
        for beliefs in (plain, wide):
            for workers in (1, 4, 4, 16):
                beliefs.observe([seen(0, workers, 100.0 * workers**0.5, job_type="ring")])
        assert not wide.grid("ring")[0, 17:].any()
        wide.introduce([few, many])
        assert (wide.grid("ring")[0, 1:] > 0).all()
        assert not plain.grid("ring")[0, 17:].any()
        np.testing.assert_array_equal(wide.grid("ring")[0, :17], plain.grid("ring")[0, :17])
        for one, other in zip(wide.posterior("ring"), plain.posterior("ring"), strict=True):
            np.testing.assert_array_equal(one[0, :17], other[0, :17])
        assert wide.deviation("ring", 0, 64) > wide.deviation("ring", 0, 16) == plain.deviation("ring", 0, 16)


def test_what_was_seen_of_many_workers_is_believed_and_kept_but_not_shared() -> None:
    beliefs = GaussianProcessBeliefs()
    beliefs.introduce([make_job(0, "ring", kind=JobKind.ALLREDUCE, max_workers=64)])
    beliefs.observe(
        [seen(0, workers, 50.0 * workers**0.5, job_type="ring") for workers in (2, 16, 48) for _ in range(9)]
    )
    assert beliefs.samples_per_second("ring", 0, 48) == pytest.approx(50.0 * 48**0.5, rel=0.2)
    assert beliefs.samples_per_second("ring", 1, 48) == beliefs.samples_per_second("ring", 0, 65) == 0.0
    kept = GaussianProcessBeliefs()
    kept.restore(beliefs.snapshot())
    np.testing.assert_array_equal(kept.grid("ring"), beliefs.grid("ring"))
    assert [entry.workers for entry in beliefs.statistics()] == [2, 16]


def test_a_dead_cell_has_no_speed() -> None:
    beliefs = after([(1, 1)])
    beliefs.observe([seen(3, 3, 0.0)])
    assert beliefs.posterior("a")[0][3, 3] == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(reports, max_size=60))
def test_the_posterior_is_finite_whatever_is_reported(progress: list[Progress]) -> None:
    beliefs = GaussianProcessBeliefs()
    beliefs.observe(progress)
    for job_type in "ab":
        median, sd = beliefs.posterior(job_type)
        assert np.isfinite(median).all()
        assert np.isfinite(sd).all()
        assert (sd >= 0).all()


ENTRY = {"kind": "ps", "cells": [[1, 1, 10.0, 5.0, 1]], "refit_at": 2, "conditioned_on": [[1, 1, 10.0, 5.0, 1]]}
OF_THE_OTHER_MODEL = {"a": {"kind": "ps", "cells": [], "coefficients": [1.0] * 5, "refit_at": 0}}


@pytest.mark.parametrize(
    "damage",
    [
        {"kind": "ring"},
        {"cells": [[1, 17, 1.0, 1.0, 1]]},
        {"cells": [[1, 1, "fast", 1.0, 1]]},
        {"conditioned_on": [[1, 1, 0.0, 5.0, 1]]},
        {"conditioned_on": [[0, 1, 1.0, 5.0, 1]]},
        {"conditioned_on": 3},
        {"refit_at": None},
    ],
)
def test_a_damaged_snapshot_is_refused_and_changes_nothing(damage: dict[str, object]) -> None:
    beliefs = after(CELLS)
    before = beliefs.snapshot()
    GaussianProcessBeliefs().restore({"a": ENTRY})
    with pytest.raises(BadInput, match="not a snapshot of speed beliefs"):
        beliefs.restore({"a": {**ENTRY, **damage}})
    with pytest.raises(BadInput, match="not a snapshot of speed beliefs"):
        beliefs.restore(OF_THE_OTHER_MODEL)
    assert beliefs.snapshot() == before


def test_a_process_of_what_another_model_was_shown_is_as_if_it_had_seen_it_itself() -> None:
    fit, process = OnlineFit(), GaussianProcessBeliefs()
    for beliefs in (fit, process):
        beliefs.observe([seen(*cell, speed=50.0 + cell[0]) for cell in CELLS[:4]])
    shown = fit.beliefs_by_type()["a"]
    assert TypeProcess.on(shown).grid() == pytest.approx(process.grid("a"))
    TypeProcess.on(shown).cells[1, 1].samples = 0.0
    assert shown.cells[1, 1].samples > 0.0


@pytest.mark.parametrize("kind", JobKind)
def test_only_the_forms_own_cells_are_on_the_grid(kind: JobKind) -> None:
    process = TypeProcess(FORMS[kind])
    process.reach_beyond()
    mean, sd = process.posterior()
    grid = process.on_grid(np.ones_like(mean))
    assert grid.shape == FORMS[kind].shape
    assert grid.sum() == len(mean) == len(sd)
    assert all(grid[cell] == process.form.has_cell(*cell) for cell in np.ndindex(grid.shape))


def test_of_a_type_of_which_nothing_was_seen_nothing_much_is_expected() -> None:
    process = TypeProcess(FORMS[JobKind.PS])
    mean, _ = process.posterior()
    assert process.grid() == pytest.approx(process.on_grid(np.exp(mean)))


def _of_a_job(samples_per_second: float, count: int = 1) -> list[Progress]:
    return [Progress("a", "t", Allocation(2, 2), 100.0, 100.0 * samples_per_second, 1.0, 9.0)] * count


def test_reports_that_are_far_from_what_a_type_does_are_doubted_until_there_are_many() -> None:
    """One job that claims the type, or counts its samples tenfold, does not change what is believed of the others."""
    beliefs = GaussianProcessBeliefs()
    beliefs.observe(_of_a_job(50.0, 20))
    before = beliefs.grid("t")[2, 2]
    beliefs.observe(lies := _of_a_job(1000.0, MOST_DOUBTED - 1))
    assert beliefs.doubted == lies
    assert beliefs.grid("t")[2, 2] == before
    resumed = GaussianProcessBeliefs()
    resumed.restore(json.loads(json.dumps(beliefs.snapshot())))
    resumed.grid("t")
    for each in (beliefs, resumed):  # what agrees ends the doubts, and after so many the type has changed
        each.observe(_of_a_job(50.0))
        assert not each.doubted
        each.observe(_of_a_job(1000.0, 3 * MOST_DOUBTED))
        assert len(each.doubted) == MOST_DOUBTED
        assert each.grid("t")[2, 2] > 3 * before
    assert resumed.digest() == beliefs.digest()


@pytest.mark.parametrize("known", [0, 20])
@pytest.mark.parametrize("every", [4, 8, 10, 15])
def test_progress_that_comes_in_lumps_is_believed(every: int, known: int) -> None:
    """A step takes longer than an interval: several reports of nothing, then one of all."""
    beliefs = GaussianProcessBeliefs()
    beliefs.observe(_of_a_job(50.0, known))
    for _ in range(20):
        for report in (*_of_a_job(0.0, every - 1), *_of_a_job(50.0 * every)):
            beliefs.observe([report])
            assert not beliefs.doubted
            beliefs.grid("t")
    assert beliefs.grid("t")[2, 2] == pytest.approx(50.0, rel=0.1)


def test_a_type_that_became_faster_is_learned_anew_though_some_reports_are_of_nothing() -> None:
    beliefs = GaussianProcessBeliefs()
    beliefs.observe(_of_a_job(50.0, 40))
    beliefs.grid("t")
    for _ in range(40):
        for report in (*_of_a_job(5000.0, 9), *_of_a_job(0.0)):
            beliefs.observe([report])
            beliefs.grid("t")
    assert beliefs.grid("t")[2, 2] == pytest.approx(0.9 * 5000.0, rel=0.15)


def test_after_a_restore_the_same_is_doubted() -> None:
    beliefs, resumed = GaussianProcessBeliefs(), GaussianProcessBeliefs()
    beliefs.observe(_of_a_job(50.0, 20))
    beliefs.grid("t")
    for before in (_of_a_job(50.0), _of_a_job(0.0)):
        beliefs.observe(before)
        resumed.go_on_from(json.loads(json.dumps(beliefs.checkpoint())))
        for each in (beliefs, resumed):
            each.observe(_of_a_job(1000.0))
        assert resumed.doubted == beliefs.doubted
        assert resumed.digest() == beliefs.digest()


def test_little_is_known_of_a_type_at_first_and_nothing_doubted() -> None:
    beliefs = GaussianProcessBeliefs()
    for samples_per_second in (50.0, 5000.0, 0.1):
        beliefs.observe(_of_a_job(samples_per_second))
        beliefs.grid("t")
        assert not beliefs.doubted
