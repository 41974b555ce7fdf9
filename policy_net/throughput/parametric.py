"""Speeds learned online, in the form that Optimus found to describe parameter-server training.

Time per sample of a type with p parameter servers and w workers: a/w + b + c·w/p + d·w + e·p, all coefficients ≥ 0:
gradient computation, shared; the constant part of a step; traffic into each server; traffic per worker; traffic per
server. Fitted by non-negative least squares on relative errors, per type, to the mean speed observed in every
allocation ("cell").
Source: Optimus (EuroSys 2018) §3.2, the speed model of synchronous training.
Deviation: Optimus runs every new job on sampled data under a few allocations first. Here a type starts from
pseudo-observations of an optimistic shape (`prior.py`), and all jobs of a type share one fit; what a scheduler does so
that enough different allocations are seen is its own affair (`probing.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from policy_net.domain import MAX_TASKS_PER_ROLE, Allocation, Progress
from policy_net.errors import BadInput
from policy_net.throughput.prior import FitPrior

Array = NDArray[np.float64]
SIDE = MAX_TASKS_PER_ROLE + 1
TERMS = 5

SHAPE_ERROR = 0.15
"""Relative error that the form itself makes in a cell (median 8%, with larger outliers, over DL2's eight models)."""
NOISE = 0.27
"""Relative deviation of one observation: the run-to-run variation that DL2 §6 reports from production, 27.3%."""
DEAD_AFTER_SECONDS = 600.0
"""A cell in which a type did nothing for this long is believed to be unable to train, until a sample is seen in it."""
FARTHEST = 100.0
"""A cell counts as at most this many times faster or slower than the type's mean at the prior's shape: beyond that it
is a fault in the report or the cluster, and would drown all others."""
REFIT_GROWTH = 0.2
"""Refit a type once its observations have grown by this share, so that the work per observation falls with their
number. A cell seen for the first time always counts."""


def features(ps: Array, workers: Array) -> Array:
    """The five terms of the form, shape (n, 5), for n pairs."""
    return np.stack([1 / workers, np.ones_like(workers), workers / ps, workers, ps], axis=1)


_PS, _WORKERS = (axis.ravel().astype(np.float64) for axis in np.meshgrid(*[np.arange(1, SIDE)] * 2, indexing="ij"))
_GRID_FEATURES = features(_PS, _WORKERS)


def _possible(samples: float, seconds: float) -> bool:
    return 0 <= samples < math.inf and 0 < seconds < math.inf


@dataclass(slots=True)
class _Cell:
    """What was seen of a type in one allocation."""

    samples: float = 0.0
    seconds: float = 0.0
    count: int = 0

    @property
    def dead(self) -> bool:
        return self.samples <= 0 and self.seconds >= DEAD_AFTER_SECONDS


class _TypeFit:
    """All cells of one type, and the fit to them; `refit_at` is the number of observations that calls for the next."""

    def __init__(self, coefficients: Array | None = None) -> None:
        self.cells: dict[tuple[int, int], _Cell] = {}
        self.count = 0
        self.refit_at = 0
        self.coefficients = np.zeros(TERMS) if coefficients is None else coefficients
        self.grid: Array | None = None

    def observe(self, index: tuple[int, int], samples: float, seconds: float) -> None:
        """Add one report; a first look at a cell, and its death or return to life, call for a fit at once."""
        cell = self.cells.get(index)
        if cell is None:
            cell = self.cells[index] = _Cell()
            self.refit_at = 0
        was_dead = cell.dead
        cell.samples += samples
        cell.seconds += seconds
        cell.count += 1
        self.count += 1
        if cell.dead != was_dead:
            self.refit_at = 0

    def snapshot(self) -> dict[str, object]:
        return {
            "cells": [
                [ps, workers, cell.samples, cell.seconds, cell.count] for (ps, workers), cell in self.cells.items()
            ],
            "coefficients": self.coefficients.tolist(),
            "refit_at": self.refit_at,
        }

    @classmethod
    def restored(cls, entry: Any) -> _TypeFit:
        """Rebuild from `snapshot`'s value; raises KeyError, TypeError or ValueError if it is something else."""
        fit = cls(np.array([float(value) for value in entry["coefficients"]]))
        fit.refit_at = int(entry["refit_at"])
        usable = fit.coefficients.shape == (TERMS,) and np.isfinite(fit.coefficients).all()
        # All zero is what a type has that was observed but never asked for: its first fit is due.
        if not (usable and (fit.coefficients >= 0).all() and (fit.coefficients.any() or fit.refit_at == 0)):
            raise ValueError(f"impossible coefficients {entry['coefficients']}")
        for ps, workers, samples, seconds, count in entry["cells"]:
            if not (0 < ps < SIDE and 0 < workers < SIDE and _possible(samples, seconds) and count > 0):
                raise ValueError(f"impossible observation {[ps, workers, samples, seconds, count]}")
            fit.cells[int(ps), int(workers)] = _Cell(float(samples), float(seconds), int(count))
            fit.count += int(count)
        return fit


class OnlineFit:
    """A `SpeedModel` that starts from a prior and sharpens with every progress report.

    Deterministic: the same calls in the same order, also across a snapshot, give the same grids bit for bit.
    """

    def __init__(self, prior: FitPrior | None = None) -> None:
        self._prior = prior or FitPrior()
        rows, targets = self._prior.rows(features)
        self._pseudo_normal, self._pseudo_moment = rows.T @ rows, rows.T @ targets
        self._types: dict[str, _TypeFit] = {}
        self._unseen_grid = self._grid_of(_TypeFit(np.array(self._prior.shape) / self._prior.samples_per_second))

    def observe(self, progress: Sequence[Progress]) -> None:
        """Take in what jobs did; entries without a worker, a parameter server or any time say nothing about speed."""
        for entry in progress:
            ps, workers = entry.allocation.ps, entry.allocation.workers
            if not (0 < ps < SIDE and 0 < workers < SIDE and _possible(entry.samples, entry.seconds)):
                continue
            fit = self._types.get(entry.job_type)
            if fit is None:
                fit = self._types[entry.job_type] = _TypeFit()
            fit.observe((ps, workers), entry.samples, entry.seconds)

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        """Believed speed in samples/s; 0 for one-sided allocations and dead cells."""
        return float(self.grid(job_type)[ps, workers])

    def grid(self, job_type: str) -> Array:
        """Believed speeds in samples/s, shape (17, 17), [ps, workers]; the same array until the belief changes."""
        fit = self._types.get(job_type)
        if fit is None:
            return self._unseen_grid
        if fit.count >= fit.refit_at:
            fit.coefficients = self._solve(fit)
            fit.refit_at = fit.count + max(1, int(REFIT_GROWTH * fit.count))
            fit.grid = None
        if fit.grid is None:
            fit.grid = self._grid_of(fit)
        return fit.grid

    def allocations_seen(self, job_type: str) -> frozenset[Allocation]:
        """The allocations in which this type was observed."""
        fit = self._types.get(job_type)
        return frozenset() if fit is None else frozenset(Allocation(workers, ps) for ps, workers in fit.cells)

    def coefficients(self, job_type: str) -> tuple[float, ...]:
        """The fitted seconds per sample of the terms 1/w, 1, w/p, w, p, as of the last fit."""
        fit = self._types.get(job_type)
        if fit is None:
            return tuple(share / self._prior.samples_per_second for share in self._prior.shape)
        self.grid(job_type)
        return tuple(fit.coefficients.tolist())

    def snapshot(self) -> dict[str, object]:
        """Everything observed and fitted, as JSON-able values; `restore` is its inverse."""
        return {job_type: fit.snapshot() for job_type, fit in sorted(self._types.items())}

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Replace what is believed by a snapshot.

        Raises:
            BadInput: the snapshot was not written by `snapshot`; nothing is changed.
        """
        try:
            self._types = {job_type: _TypeFit.restored(entry) for job_type, entry in snapshot.items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadInput(f"not a snapshot of speed beliefs: {error!r}; delete it to start from the prior") from error

    def _solve(self, fit: _TypeFit) -> Array:
        """Coefficients in seconds per sample, shape (5,), from all live cells and the prior."""
        seen = [
            (ps, workers, cell.seconds / cell.samples, cell.count)
            for (ps, workers), cell in fit.cells.items()
            if cell.samples > 0
        ]
        shape = np.array(self._prior.shape)
        if not seen:
            return shape / self._prior.samples_per_second
        ps, workers, times, counts = np.array(seen, dtype=np.float64).T
        terms = features(ps, workers)
        precision = 1 / (SHAPE_ERROR**2 + NOISE**2 / counts)
        # The prior says how speeds relate to each other; how fast the type is, only observations say.
        relative = times / (terms @ shape)
        unit = np.exp(np.average(np.log(relative), weights=precision))
        times = np.clip(relative, unit / FARTHEST, unit * FARTHEST) * (terms @ shape)
        rows = terms * (unit / times)[:, None]
        weighted = rows * precision[:, None]
        # Solved through the 5×5 normal equations: the cost does not grow with the number of cells.
        lower = np.linalg.cholesky(rows.T @ weighted + self._pseudo_normal)
        solution, _ = nnls(lower.T, np.linalg.solve(lower, weighted.sum(axis=0) + self._pseudo_moment))
        return np.asarray(solution * unit, dtype=np.float64)

    def _grid_of(self, fit: _TypeFit) -> Array:
        """Speeds of the fitted form, shape (17, 17), with dead cells and one-sided allocations at zero."""
        grid = np.zeros((SIDE, SIDE))
        grid[1:, 1:] = (1 / (_GRID_FEATURES @ fit.coefficients)).reshape(SIDE - 1, SIDE - 1)
        for index, cell in fit.cells.items():
            if cell.dead:
                grid[index] = 0.0
        grid.setflags(write=False)
        return grid
