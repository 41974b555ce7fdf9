"""Asynchronous speeds: DL2's synchronous measurements against `policy_net.laboratory.speeds.fitted_speeds`.

There are no asynchronous measurements to compare with; this says how well the constants explain the synchronous steps
that they were fitted to.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.speed_fit.quality import Array, FitError, crossed, fit_times, relative, row
from policy_net.domain import MAX_TASKS_PER_ROLE
from policy_net.laboratory.csv_rows import read_rows
from policy_net.laboratory.speeds.fitted_speeds import FITTED_QUEUES, QueueConstants, queue_features

COLUMNS = ("model", "total_batch", "num_ps", "num_workers", "samples_per_s")
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Step:
    """How long a synchronous step took."""

    model: str
    ps: int
    workers: int
    seconds: float


def read_steps(path: Path) -> list[Step]:
    """All steps of at most 16 PSs and 16 workers that made progress. Raises BadInput if the file cannot be used."""
    found = []
    for item in read_rows(path, COLUMNS):
        speed = item.number_from_zero("samples_per_s")
        ps, workers = item.whole("num_ps", 1), item.whole("num_workers", 1)
        if speed > 0 and max(ps, workers) <= MAX_TASKS_PER_ROLE:
            found.append(Step(item.text("model"), ps, workers, item.whole("total_batch", 1) / speed))
    return found


def fit_queue(points: list[Step]) -> QueueConstants:
    """Constants of one model."""
    return QueueConstants(*fit_times(_features(points), _seconds(points)).tolist())


def report(path: Path) -> list[FitError]:
    """One row per model; held out: every fifth measurement, from the other four."""
    measured = read_steps(path)
    rows = []
    for model, constants in FITTED_QUEUES.items():
        points = [point for point in measured if point.model == model]
        held_out = crossed(points, lambda index, _: index % FOLDS, lambda rest, left: _errors(fit_queue(rest), left))
        rows.append(row(model, _errors(constants, points), "every fifth from the others", held_out))
    return rows


def _errors(constants: QueueConstants, points: list[Step]) -> Array:
    """Of speeds."""
    values = np.array([constants.compute, constants.latency, constants.server, constants.shared])
    return relative(1 / (_features(points) @ values), 1 / _seconds(points))


def _features(points: list[Step]) -> Array:
    ps, workers = (np.array([getattr(point, name) for point in points], dtype=float) for name in ("ps", "workers"))
    return queue_features(ps, workers)


def _seconds(points: list[Step]) -> Array:
    return np.array([point.seconds for point in points])
