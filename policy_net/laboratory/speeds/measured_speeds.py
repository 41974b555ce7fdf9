"""Full speed tables from partial measurements: what `policy-net fit-speed` does.

All-reduce models are fitted in the form of their kind, `throughput.form` (3 constants). PS models are fitted in theirs
(5 constants), and where the measurements are many also as a surface (29, `surface_fit`); of the two, the one that
predicts measurements better that it was not fitted to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy_net.laboratory.simulation.surface_fit import as_arrays, best_surface, can_fit_surface, fit_surface
from policy_net.laboratory.speeds.speed import TableSpeedModel, fitted_grid
from policy_net.throughput.measured import MeasuredFit, SpeedPoint

Array = NDArray[np.float64]
Fit = Callable[[Sequence[SpeedPoint]], Array]

FOLDS = 5
"""Every point is predicted once from the other four fifths."""

FOLD_SETTING = (4, 0.03)
"""Importance of a point for the surfaces that are only compared: the middle of the search of `surface_fit`."""


@dataclass(frozen=True, slots=True)
class FitQuality:
    """How a model's fit compares with its measurements, relative to them.

    Attributes:
        points: measurements that were used; `left_out` had the speed zero.
        form: `steps`, a step's duration as a sum of terms; `surface`, a polynomial of the logs.
        held_out_median_error: of points that were predicted from the others; None where these were too few.
        best_ps, best_workers: where the fit is fastest.
    """

    model: str
    points: int
    left_out: int
    form: str
    median_error: float
    max_error: float
    held_out_median_error: float | None
    best_ps: int
    best_workers: int


def refit(points: Mapping[str, Sequence[SpeedPoint]], origin: str) -> tuple[TableSpeedModel, list[FitQuality]]:
    """Fit every model to its points; `origin` names their source in messages.

    Raises:
        BadInput: a model has fewer points than its form has constants.
    """
    grids, qualities = {}, []
    for model, measured in points.items():
        grids[model], quality = _refit_model(model, measured, origin)
        qualities.append(quality)
    return TableSpeedModel(grids, f"the fit to {origin}"), qualities


def relative_errors(grid: Array, points: Sequence[SpeedPoint]) -> Array:
    """|fit − measured| / measured of points with a speed above 0."""
    ps, workers, speed = as_arrays(points)
    return np.asarray(np.abs(grid[ps, workers] - speed) / speed)


def _refit_model(model: str, measured: Sequence[SpeedPoint], origin: str) -> tuple[Array, FitQuality]:
    alive = [point for point in measured if point.samples_per_second > 0]

    def steps(chosen: Sequence[SpeedPoint]) -> Array:
        return MeasuredFit({model: chosen}, origin).grid(model)

    grid, form = steps(alive), "steps"
    held_out = _held_out_error(alive, steps, needed=lambda rest: len(rest) >= _CONSTANTS_AT_MOST)
    if can_fit_surface(alive):
        other = _held_out_error(alive, lambda rest: fitted_grid(fit_surface(rest, *FOLD_SETTING)), can_fit_surface)
        if other is not None and (held_out is None or other < held_out):
            grid, form, held_out = fitted_grid(best_surface(alive)), "surface", other
    errors = relative_errors(grid, alive)
    best_ps, best_workers = (int(index) for index in np.unravel_index(int(grid.argmax()), grid.shape))
    quality = FitQuality(
        model,
        len(alive),
        len(measured) - len(alive),
        form,
        float(np.median(errors)),
        float(errors.max()),
        held_out,
        best_ps,
        best_workers,
    )
    return grid, quality


_CONSTANTS_AT_MOST = 5


def _held_out_error(
    points: Sequence[SpeedPoint], fit: Fit, needed: Callable[[Sequence[SpeedPoint]], bool]
) -> float | None:
    """Median error of points that were predicted from the others; None if these do not suffice."""
    errors: list[float] = []
    for fold in range(FOLDS):
        # Neighbours in a table differ least: taking every fifth leaves each point some of them.
        rest = [point for index, point in enumerate(points) if index % FOLDS != fold]
        left = [point for index, point in enumerate(points) if index % FOLDS == fold]
        if not left or not needed(rest):
            return None
        errors += relative_errors(fit(rest), left).tolist()
    return float(np.median(errors))
