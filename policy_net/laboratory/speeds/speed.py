"""Truth of the simulator about speeds: constants that we fitted, or a table that the user brings.

Both are injected as a `SpeedModel`, so that no scheduler can tell truth from belief.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import MAX_ALLREDUCE_WORKERS, MAX_TASKS_PER_ROLE, JobKind, SpeedModel, speed_at
from policy_net.errors import BadInput
from policy_net.laboratory.catalogue import CATALOGUE, ModelProfile
from policy_net.laboratory.csv_rows import CsvRow, read_rows
from policy_net.laboratory.speeds.fitted_speeds import (
    FITTED_QUEUES,
    FITTED_RINGS,
    FITTED_SPEEDS,
    SpeedConstants,
    allreduce_speeds,
    async_grid,
)
from policy_net.throughput.parametric import SpeedPoint

SPEED_TABLE_COLUMNS = ("model", "num_ps", "num_workers", "samples_per_s")
GRID_SIDE = MAX_TASKS_PER_ROLE + 1
RING_SHAPE = (1, MAX_ALLREDUCE_WORKERS + 1)
"""Of a grid of a model without parameter servers."""
_SHAPES = ((GRID_SIDE, GRID_SIDE), RING_SHAPE)
MOST_OF_A_JOB = (
    f"{MAX_TASKS_PER_ROLE} PSs and {MAX_TASKS_PER_ROLE} workers, or 0 PSs and {MAX_ALLREDUCE_WORKERS} workers"
)
SLOWEST, FASTEST = 1e-12, 1e12
"""Samples a second beyond which a number is a slip of the pen, and fits lose their digits."""


class TableSpeedModel:
    """Speeds in samples/s from one grid per model [ps, workers], shape (17, 17), or (1, 65) without servers."""

    def __init__(self, grids: Mapping[str, NDArray[np.float64]], origin: str) -> None:
        """Keep read-only copies of `grids`; `origin` names their source in messages.

        A grid (17, 17) of a model without servers says nothing of more than 16 workers: it does not train with them.

        Raises:
            ValueError: a grid has another shape, a value that is not finite and ≥ 0, a speed without a worker, or
                speeds both with and without a PS.
        """
        self._origin = origin
        self._grids: dict[str, NDArray[np.float64]] = {}
        for name, grid in grids.items():
            copy = np.array(grid, dtype=np.float64)
            if copy.shape not in _SHAPES or not np.isfinite(copy).all() or (copy < 0).any():
                shapes = " or ".join(str(shape) for shape in _SHAPES)
                raise ValueError(f"speeds of {name!r}: need finite values ≥ 0 of shape {shapes}")
            if copy[:, 0].any():
                raise ValueError(f"speeds of {name!r}: a job without a worker cannot train")
            if copy[0].any() and copy[1:].any():
                raise ValueError(f"speeds of {name!r}: a type trains either with PSs or without, not both")
            if copy[0].any():
                copy = np.pad(copy[:1], ((0, 0), (0, RING_SHAPE[1] - copy.shape[1])))
            copy.setflags(write=False)
            self._grids[name] = copy

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models that have a grid."""
        return tuple(self._grids)

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        """Speed in samples/s.

        Raises:
            BadInput: the model is not known.
            ValueError: no job may hold so much.
        """
        if not (0 <= ps < GRID_SIDE and 0 <= workers < (GRID_SIDE if ps else RING_SHAPE[1])):
            most = f"0…{MAX_TASKS_PER_ROLE}, or 0…{MAX_ALLREDUCE_WORKERS} workers without PSs"
            raise ValueError(f"{ps} PSs and {workers} workers: both must be {most}")
        return speed_at(self.grid(job_type), ps, workers)

    def grid(self, job_type: str) -> NDArray[np.float64]:
        """Speeds in samples/s, indexed [ps, workers]; read-only. BadInput for an unknown model."""
        grid = self._grids.get(job_type)
        if grid is None:
            raise BadInput(
                f"no speeds for model {job_type!r} in {self._origin}: it has {', '.join(self._grids)}; add it or, if"
                " recorded jobs train in another way, say so with --job-kind"
            )
        return grid


def _grid_of(profile: ModelProfile) -> NDArray[np.float64]:
    if profile.kind is JobKind.ALLREDUCE:
        return allreduce_speeds(FITTED_RINGS[profile.family], profile.global_batch)[None]
    synchronous = fitted_grid(FITTED_SPEEDS[profile.family])
    if profile.kind is JobKind.ASYNC:
        return async_grid(FITTED_QUEUES[profile.family], one_worker=synchronous[:, 1])
    return synchronous


def fitted_grid(constants: SpeedConstants) -> NDArray[np.float64]:
    """The grid, shape (17, 17) [ps, workers] in samples/s, that the constants of a synchronous PS model stand for.

    With p PSs and w workers: log speed = A[p] + Σ_j b[j]·(log w)^j + Σ_{i,j=1..3} c[i, j]·(log p)^i·(log w)^j.
    A[p] is free for every p because parameters are sharded in whole blocks: the largest shard, which sets the pace,
    does not shrink smoothly (5 and 11 PSs stand out in most models). Workers add compute and, beyond a point, more
    traffic than they are worth, which is smooth; so is the way in which more PSs move that point.
    """
    log_count = np.log(np.arange(1, GRID_SIDE))
    powers = log_count[:, None] ** np.arange(1, 1 + len(constants.workers))
    log_speed = np.array(constants.servers)[:, None] + powers @ np.array(constants.workers)
    interaction = np.array(constants.interaction)
    side = np.arange(1, 1 + len(interaction))
    log_speed = log_speed + (log_count[:, None] ** side) @ interaction @ (log_count[:, None] ** side).T
    grid = np.zeros((GRID_SIDE, GRID_SIDE))
    grid[1:, 1:] = np.exp(log_speed)
    return grid


@cache
def default_speeds() -> SpeedModel:
    """Speeds of every type of the catalogue from fitted constants: the truth that ships with the package."""
    return TableSpeedModel({name: _grid_of(profile) for name, profile in CATALOGUE.items()}, "the fitted constants")


def read_speed_table(path: str | Path) -> TableSpeedModel:
    """Read a csv with the columns model, num_ps, num_workers, samples_per_s.

    Every model that is named needs all 256 combinations of 1–16 PSs and 1–16 workers, or, if it trains by all-reduce,
    1–16 workers with 0 PSs; zero is a valid speed (a combination that cannot train). Of more workers with 0 PSs, up to
    64, counts what follows without a gap; beyond it the model cannot train.

    Raises:
        BadInput: the file cannot be read, or a row or a model in it cannot be used.
    """
    grids: dict[str, NDArray[np.float64]] = {}
    for row, model, point in measured_rows(Path(path)):
        grid = grids.get(model)
        if grid is None:
            grid = grids[model] = np.zeros((GRID_SIDE, GRID_SIDE) if point.ps else RING_SHAPE)
            grid[:, 1:] = np.nan
        ps, workers = point.ps, point.workers
        if not np.isnan(grid[ps, workers]):
            raise row.bad(
                "model", f"{model!r} with {ps} PSs and {workers} workers is given twice", "keep one of the rows"
            )
        grid[ps, workers] = point.samples_per_second
    for model, grid in grids.items():
        if len(grid) == 1:
            beyond = grid[0, GRID_SIDE:]
            beyond[np.logical_or.accumulate(np.isnan(beyond))] = 0.0
        else:
            grid[0, 1:] = 0.0
        holes = np.argwhere(np.isnan(grid))
        if len(holes):
            ps, workers = holes[0]
            needs = "1–16 of each" if ps else "0 PSs and 1–16 workers, as it trains without PSs"
            raise BadInput(
                f"{path}: model {model!r} has no speed for {ps} PSs and {workers} workers; it needs {needs}"
                " (`policy-net fit-speed` fills gaps)"
            )
    return TableSpeedModel(grids, str(path))


def write_speed_table(speeds: TableSpeedModel, path: Path) -> None:
    """Write a csv that `read_speed_table` reads. Raises OSError if it cannot be written."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(SPEED_TABLE_COLUMNS)
        for model in speeds.model_names:
            grid = speeds.grid(model)
            most = max(MAX_TASKS_PER_ROLE, *np.flatnonzero(grid.any(axis=0)).tolist())
            for ps in range(1, GRID_SIDE) if grid[1:].any() else (0,):
                writer.writerows((model, ps, workers, f"{grid[ps, workers]:.6g}") for workers in range(1, most + 1))


def measured_rows(path: Path) -> Iterator[tuple[CsvRow, str, SpeedPoint]]:
    """Models and speeds of a csv with the columns model, num_ps, num_workers, samples_per_s.

    Rows beyond the sizes that a job may have are left out.

    Raises:
        BadInput: the file or a row cannot be used, a model has speeds with and without PSs, or no row is left.
    """
    uses_ps: dict[str, bool] = {}
    for row in read_rows(path, SPEED_TABLE_COLUMNS, whole_lines=True):
        model = row.text("model")
        ps, workers = row.whole("num_ps", at_least=0), row.whole("num_workers", at_least=1)
        speed = row.number_from_zero("samples_per_s")
        if speed and not SLOWEST <= speed <= FASTEST:
            remedy = f"use 0, or samples a second from {SLOWEST:g} to {FASTEST:g}"
            raise row.bad("samples_per_s", f"is {row.text('samples_per_s')}", remedy)
        if ps > MAX_TASKS_PER_ROLE or workers > (MAX_TASKS_PER_ROLE if ps else MAX_ALLREDUCE_WORKERS):
            continue
        if uses_ps.setdefault(model, ps > 0) != (ps > 0):
            raise row.bad(
                "num_ps",
                f"is {ps}, but {model!r} has speeds {'without' if ps else 'with'} parameter servers above",
                "give the two ways of training different names",
            )
        yield row, model, SpeedPoint(ps, workers, speed)
    if not uses_ps:
        raise BadInput(f"{path}: no row has at most {MOST_OF_A_JOB}")
