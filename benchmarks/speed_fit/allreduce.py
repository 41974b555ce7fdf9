"""The all-reduce models: ElasticFlow's A100 measurements against `policy_net.laboratory.speeds.fitted_speeds`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.speed_fit.quality import Array, FitError, crossed, fit_times, relative, row
from policy_net.domain import MAX_ALLREDUCE_WORKERS
from policy_net.laboratory.csv_rows import read_rows
from policy_net.laboratory.speeds.fitted_speeds import (
    FITTED_RINGS,
    WELL_CONNECTED,
    RingConstants,
    doublings,
    ring_features,
    step_seconds,
)

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
    """All steps of up to 64 A100s. Raises BadInput if the file cannot be used."""
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
    return [point for point in found if point.workers <= MAX_ALLREDUCE_WORKERS]


def fit_ring(points: list[Scaling]) -> RingConstants:
    """Constants of one model, all batches together: four up to 16 GPUs, then the fifth from what is left beyond."""
    near, far = _parted(points)
    fixed, per_sample, ring, per_peer = fit_times(_features(near), _seconds(near)).tolist()
    constants = RingConstants(fixed, per_sample, ring, per_peer)
    if not far:
        return constants
    beyond = doublings(np.array([float(point.workers) for point in far]))
    return replace(constants, per_doubling=float(fit_times(beyond[:, None], _seconds(far), _fitted(constants, far))[0]))


def report(profiles: Path, *, beyond: bool = False) -> list[FitError]:
    """One row per model of the catalogue; held out: every batch, from the model's other batches.

    Args:
        beyond: the errors are of more than 16 GPUs, else of up to 16.
    """
    measured = read_scaling(profiles)
    rows = []

    def judged(constants: RingConstants, points: list[Scaling]) -> Array:
        return _errors(constants, _parted(points)[beyond])

    for model, constants in FITTED_RINGS.items():
        points = [point for point in measured if point.model == model]
        held_out = crossed(points, lambda _, point: point.batch, lambda rest, left: judged(fit_ring(rest), left))
        rows.append(row(model, judged(constants, points), "each batch from the others", held_out))
    return rows


def _errors(constants: RingConstants, points: list[Scaling]) -> Array:
    """Of speeds."""
    return relative(1 / _fitted(constants, points), 1 / _seconds(points))


def _parted(points: list[Scaling]) -> tuple[list[Scaling], list[Scaling]]:
    """Those of up to 16 GPUs, and of more."""
    near = [point for point in points if point.workers <= WELL_CONNECTED]
    return near, [point for point in points if point.workers > WELL_CONNECTED]


def _fitted(constants: RingConstants, points: list[Scaling]) -> Array:
    """Seconds of a step."""
    each = [step_seconds(constants, point.batch, np.array([float(point.workers)])) for point in points]
    return np.concatenate(each)


def _features(points: list[Scaling]) -> Array:
    return np.concatenate([ring_features(point.batch, np.array([float(point.workers)])) for point in points])


def _seconds(points: list[Scaling]) -> Array:
    return np.array([point.seconds for point in points])
