"""The all-reduce models: ElasticFlow's A100 measurements against `policy_net.laboratory.speeds.allreduce_speeds`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.speed_fit.quality import Array, FitError, crossed, fit_times, relative, row
from policy_net.domain import MAX_TASKS_PER_ROLE
from policy_net.laboratory.csv_rows import read_rows
from policy_net.laboratory.speeds.allreduce_speeds import FITTED_RINGS, RingConstants, ring_features

FILE = "elasticflow_scaling.csv"
COLUMNS = ("gpu_type", "model", "global_batch", "num_gpus", "iters_per_s")
GPU_TYPE = "A100"


@dataclass(frozen=True, slots=True)
class Scaling:
    """How long a step took."""

    model: str
    batch: int
    workers: int
    seconds: float


def read_scaling(profiles: Path) -> list[Scaling]:
    """All steps of up to 16 A100s. Raises BadInput if the file cannot be used."""
    rows = read_rows(profiles / FILE, COLUMNS)
    found = [
        Scaling(
            item.text("model"),
            item.whole("global_batch", 1),
            item.whole("num_gpus", 1),
            1 / item.number("iters_per_s"),
        )
        for item in rows
        if item.text("gpu_type") == GPU_TYPE
    ]
    return [point for point in found if point.workers <= MAX_TASKS_PER_ROLE]


def fit_ring(points: list[Scaling]) -> RingConstants:
    """Constants of one model, all batches together."""
    return RingConstants(*fit_times(_features(points), _seconds(points)).tolist())


def report(profiles: Path) -> list[FitError]:
    """One row per model of the catalogue; held out: every batch, from the model's other batches."""
    measured = read_scaling(profiles)
    rows = []
    for model, constants in FITTED_RINGS.items():
        points = [point for point in measured if point.model == model]
        held_out = crossed(points, lambda _, point: point.batch, lambda rest, left: _errors(fit_ring(rest), left))
        rows.append(row(model, _errors(constants, points), "each batch from the others", held_out))
    return rows


def _errors(constants: RingConstants, points: list[Scaling]) -> Array:
    """Of speeds."""
    values = np.array([constants.fixed, constants.per_sample, constants.ring, constants.per_peer])
    return relative(1 / (_features(points) @ values), 1 / _seconds(points))


def _features(points: list[Scaling]) -> Array:
    return np.concatenate([ring_features(point.batch, np.array([float(point.workers)])) for point in points])


def _seconds(points: list[Scaling]) -> Array:
    return np.array([point.seconds for point in points])
