"""Fits the surface of `speed.fitted_grid` to measured speeds of a synchronous PS model.

Least absolute error of log speed (iteratively re-weighted least squares), since a few measurements are outliers and
some are dead (speed zero; left out). Schedulers look for the best allocation, so a measurement weighs
floor + (speed/best)^power; those (power, floor) of a small search are kept that give the least mean error while the
measured speed where the fit is fastest is at least 97% of the best measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import MAX_TASKS_PER_ROLE
from policy_net.laboratory.speeds.fitted_speeds import SpeedConstants
from policy_net.laboratory.speeds.speed import fitted_grid
from policy_net.throughput.measured import SpeedPoint

Array = NDArray[np.float64]

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
