"""The simulator's truth about speeds: constants that we fitted, or a table that the user brings.

Both are injected as a `SpeedModel`, so that no scheduler can tell truth from belief.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import MAX_TASKS_PER_ROLE, JobKind, SpeedModel
from policy_net.errors import BadInput
from policy_net.laboratory.catalogue import CATALOGUE, ModelProfile
from policy_net.laboratory.csv_rows import Row, read_rows
from policy_net.laboratory.speeds.allreduce_speeds import FITTED_RINGS, allreduce_speeds
from policy_net.laboratory.speeds.async_speeds import FITTED_QUEUES, async_grid
from policy_net.laboratory.speeds.fitted_speeds import FITTED_SPEEDS, SpeedConstants

SPEED_TABLE_COLUMNS = ("model", "num_ps", "num_workers", "samples_per_s")
GRID_SIDE = MAX_TASKS_PER_ROLE + 1
SLOWEST, FASTEST = 1e-12, 1e12
"""Samples a second beyond which a number is a slip of the pen, and fits lose their digits."""


class TableSpeedModel:
    """Speeds from one grid per model, shape (17, 17), indexed [ps, workers], in samples/s."""

    def __init__(self, grids: Mapping[str, NDArray[np.float64]], origin: str) -> None:
        """Keep read-only copies of `grids`; `origin` names their source in messages.

        Raises:
            ValueError: a grid has another shape, a value that is not finite and ≥ 0, a speed without a worker, or
                speeds both with and without a PS.
        """
        self._origin = origin
        self._grids: dict[str, NDArray[np.float64]] = {}
        for name, grid in grids.items():
            copy = np.array(grid, dtype=np.float64)
            if copy.shape != (GRID_SIDE, GRID_SIDE) or not np.isfinite(copy).all() or (copy < 0).any():
                raise ValueError(f"speeds of {name!r}: need finite values ≥ 0 of shape ({GRID_SIDE}, {GRID_SIDE})")
            if copy[:, 0].any():
                raise ValueError(f"speeds of {name!r}: a job without a worker cannot train")
            if copy[0].any() and copy[1:].any():
                raise ValueError(f"speeds of {name!r}: a type trains either with PSs or without, not both")
            copy.setflags(write=False)
            self._grids[name] = copy

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models that have a grid."""
        return tuple(self._grids)

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        """Speed in samples/s. Raises BadInput for an unknown model and ValueError for counts outside 0…16."""
        if not (0 <= ps < GRID_SIDE and 0 <= workers < GRID_SIDE):
            raise ValueError(f"{ps} PSs and {workers} workers: both must be 0…{MAX_TASKS_PER_ROLE}")
        return float(self.grid(job_type)[ps, workers])

    def grid(self, job_type: str) -> NDArray[np.float64]:
        """Speeds in samples/s, shape (17, 17), indexed [ps, workers]; read-only. BadInput for an unknown model."""
        grid = self._grids.get(job_type)
        if grid is None:
            raise BadInput(
                f"no speeds for model {job_type!r} in {self._origin}: it has {', '.join(self._grids)}; add it or, if"
                " recorded jobs train in another way, say so with --job-kind"
            )
        return grid


class FittedSpeedModel(TableSpeedModel):
    """Speeds of every type of the catalogue from fitted constants: the truth that ships with the package."""

    def __init__(self) -> None:
        super().__init__({name: _grid_of(profile) for name, profile in CATALOGUE.items()}, "the fitted constants")


def _grid_of(profile: ModelProfile) -> NDArray[np.float64]:
    """The grid of one type, by its kind."""
    if profile.kind is JobKind.ALLREDUCE:
        grid = np.zeros((GRID_SIDE, GRID_SIDE))
        grid[0] = allreduce_speeds(FITTED_RINGS[profile.family], profile.global_batch)
        return grid
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
    """The fitted truth, built once."""
    return FittedSpeedModel()


def read_speed_table(path: str | Path) -> TableSpeedModel:
    """Read a csv with the columns model, num_ps, num_workers, samples_per_s.

    Every model that is named needs all 256 combinations of 1–16 PSs and 1–16 workers, or, if it trains by all-reduce,
    1–16 workers with 0 PSs; zero is a valid speed (a combination that cannot train).

    Raises:
        BadInput: the file cannot be read, or a row or a model in it cannot be used.
    """
    path = Path(path)
    grids: dict[str, NDArray[np.float64]] = {}
    for row in read_rows(path, SPEED_TABLE_COLUMNS):
        _enter(grids, row)
    if not grids:
        raise BadInput(f"{path}: no row has at most {MAX_TASKS_PER_ROLE} PSs and {MAX_TASKS_PER_ROLE} workers")
    for model, grid in grids.items():
        trains_with_ps = bool(np.isnan(grid[0, 1:]).all())
        grid[slice(0, 1) if trains_with_ps else slice(1, None), 1:] = 0.0
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
            for ps in range(1, GRID_SIDE) if grid[1:].any() else (0,):
                writer.writerows((model, ps, workers, f"{grid[ps, workers]:.6g}") for workers in range(1, GRID_SIDE))


def speed_in(row: Row) -> float:
    """The speed that a row states: 0, or one that a machine can have. Raises MalformedRow if it is none."""
    speed = row.number_from_zero("samples_per_s")
    if speed and not SLOWEST <= speed <= FASTEST:
        remedy = f"use 0, or samples a second from {SLOWEST:g} to {FASTEST:g}"
        raise row.bad("samples_per_s", f"is {row.text('samples_per_s')}", remedy)
    return speed


def _enter(grids: dict[str, NDArray[np.float64]], row: Row) -> None:
    """Put one row of the table into its model's grid."""
    model = row.text("model")
    ps, workers = row.whole("num_ps", at_least=0), row.whole("num_workers", at_least=1)
    speed = speed_in(row)
    if not (ps <= MAX_TASKS_PER_ROLE and workers <= MAX_TASKS_PER_ROLE):
        return  # measured, but beyond what a job may hold
    grid = grids.get(model)
    if grid is None:
        grid = grids[model] = np.zeros((GRID_SIDE, GRID_SIDE))
        grid[:, 1:] = np.nan
    if not np.isnan(grid[1:, 1:] if ps == 0 else grid[0, 1:]).all():
        raise row.bad(
            "num_ps",
            f"is {ps}, but {model!r} has speeds {'without' if ps else 'with'} parameter servers above",
            "give the two ways of training different names",
        )
    if not np.isnan(grid[ps, workers]):
        raise row.bad("model", f"{model!r} with {ps} PSs and {workers} workers is given twice", "keep one of the rows")
    grid[ps, workers] = speed
