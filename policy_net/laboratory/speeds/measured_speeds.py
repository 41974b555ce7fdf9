"""Measured speeds, which may have gaps: points read from a csv, and full speed tables fitted to them.

Unlike a speed table (`speed.read_speed_table`), which is the truth and has no gaps, the points may be few, and one
allocation may have been measured several times. A policy is given them beforehand, or `policy-net fit-speed` makes a
table of them: all-reduce models are fitted in the form of their kind, `throughput.form` (3 constants). PS models are
fitted in theirs (5 constants), and where the measurements are many also as a surface (29 constants,
`speed.fitted_grid`); of the two, the one that predicts measurements better that it was not fitted to.

The surface is fitted by least absolute error of log speed (iteratively re-weighted least squares), since a few
measurements are outliers and some are dead (speed zero; left out). Schedulers look for the best allocation, so a
measurement weighs floor + (speed/best)^power; those (power, floor) of a small search are kept that give the least mean
error while the measured speed where the fit is fastest is at least 97% of the best measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import MAX_TASKS_PER_ROLE
from policy_net.laboratory.speeds.fitted_speeds import SpeedConstants
from policy_net.laboratory.speeds.speed import TableSpeedModel, fitted_grid, measured_rows
from policy_net.throughput.parametric import MeasuredFit, SpeedPoint

Array = NDArray[np.float64]
Fit = Callable[[Sequence[SpeedPoint]], Array]

FOLDS = 5
"""Every point is predicted once from the other four fifths."""

FOLD_SETTING = (4, 0.03)
"""Importance of a point for the surfaces that are only compared: the middle of the search of `best_surface`."""

_CONSTANTS_AT_MOST = 5
"""Of the form of PS models; as many points are needed to predict others."""

COUNTS = np.arange(1, MAX_TASKS_PER_ROLE + 1)
WORKER_POWERS = 4
INTERACTION_POWERS = 3
SURFACE_CONSTANTS = MAX_TASKS_PER_ROLE + WORKER_POWERS + INTERACTION_POWERS**2
IMPORTANCE_POWERS = (2, 4, 6, 8, 12)
IMPORTANCE_FLOORS = (0.01, 0.03, 0.1)
REWEIGHTINGS = 80
SMALLEST_RESIDUAL = 0.01
"""Residuals of log speed below this weigh as in least squares; the measurements are no more exact than that."""
BEST_POINT_GOAL = 0.97
DECIMALS = 5


def read_measured_points(path: str | Path) -> MeasuredFit:
    """Fit the points of a csv; see `read_points`.

    Raises:
        BadInput: as there, or a model has too few points.
    """
    return MeasuredFit(read_points(path), str(path))


def read_points(path: str | Path) -> dict[str, list[SpeedPoint]]:
    """The points by model of a csv with the columns model, num_ps (0 for all-reduce), num_workers, samples_per_s.

    Raises:
        BadInput: the file cannot be read, or a row cannot be used.
    """
    points: dict[str, list[SpeedPoint]] = {}
    for _, model, point in measured_rows(Path(path)):
        points.setdefault(model, []).append(point)
    return points


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
    # Far from all measurements the form says little, and a table is taken for the truth.
    grid = grid.copy()
    grid[:, max(MAX_TASKS_PER_ROLE, *(point.workers for point in alive)) + 1 :] = 0.0
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


def can_fit_surface(points: Sequence[SpeedPoint]) -> bool:
    """Whether there are enough points: every number of servers occurs, and twice as many points as constants."""
    alive = [point for point in points if point.samples_per_second > 0]
    return {point.ps for point in alive} >= set(COUNTS.tolist()) and len(alive) >= 2 * SURFACE_CONSTANTS


def best_surface(points: Sequence[SpeedPoint]) -> SpeedConstants:
    """The constants of the best setting of the search; `can_fit_surface` must hold."""
    ps, workers, speed = as_arrays(points)
    alive = speed > 0

    def badness(constants: SpeedConstants) -> tuple[bool, float]:
        fit = fitted_grid(constants)[ps, workers]
        error = float(np.mean(np.abs(fit[alive] - speed[alive]) / speed[alive]))
        return float(speed[fit.argmax()] / speed.max()) < BEST_POINT_GOAL, error

    settings = product(IMPORTANCE_POWERS, IMPORTANCE_FLOORS)
    return min((fit_surface(points, *setting) for setting in settings), key=badness)


def fit_surface(points: Sequence[SpeedPoint], power: int, floor: float) -> SpeedConstants:
    """Weighted least absolute error of log speed for one setting."""
    ps, workers, speed = as_arrays([point for point in points if point.samples_per_second > 0])
    log_ps, log_workers = np.log(ps), np.log(workers)
    exponents = range(1, INTERACTION_POWERS + 1)
    columns = [(ps == count).astype(float) for count in COUNTS]
    columns += [log_workers**power_of_workers for power_of_workers in range(1, WORKER_POWERS + 1)]
    columns += [log_ps**i * log_workers**j for i, j in product(exponents, exponents)]
    features = np.stack(columns, axis=-1)
    target = np.log(speed)
    importance = np.sqrt(floor + (speed / speed.max()) ** power)
    weight = importance
    for _ in range(REWEIGHTINGS):
        solution = np.linalg.lstsq(features * weight[:, None], target * weight, rcond=1e-10)[0]
        weight = importance / np.sqrt(np.maximum(np.abs(target - features @ solution), SMALLEST_RESIDUAL))
    values = [round(float(value), DECIMALS) for value in solution]
    servers, rest = values[: len(COUNTS)], values[len(COUNTS) :]
    interaction = np.array(rest[WORKER_POWERS:]).reshape(INTERACTION_POWERS, INTERACTION_POWERS)
    return SpeedConstants(
        tuple(servers), tuple(rest[:WORKER_POWERS]), tuple(tuple(map(float, row)) for row in interaction)
    )


def as_arrays(points: Sequence[SpeedPoint]) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """PSs, workers and samples/s, each of shape (points,)."""
    ps = np.array([point.ps for point in points], dtype=np.int64)
    workers = np.array([point.workers for point in points], dtype=np.int64)
    return ps, workers, np.array([point.samples_per_second for point in points], dtype=np.float64)
