"""Speeds learned online, in the form that Optimus found to describe distributed training (`form.py`).

Fitted by non-negative least squares on relative errors, per type, to the mean speed observed in every allocation
("cell").
Source: Optimus (EuroSys 2018) §3.2.
Deviation: Optimus runs every new job on sampled data under a few allocations first. Here a type starts from
pseudo-observations of an optimistic shape (`prior.py`), and all jobs of a type share one fit; what a scheduler does so
that enough different allocations are seen is its own affair (`probing.py`). All-reduce types have a form of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from policy_net.domain import Allocation, Job, JobKind, Progress
from policy_net.errors import BadInput
from policy_net.throughput.form import FORMS, SIDE, SpeedForm

Array = NDArray[np.float64]

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

    def __init__(self, form: SpeedForm, coefficients: Array | None = None) -> None:
        self.form = form
        self.cells: dict[tuple[int, int], _Cell] = {}
        self.count = 0
        self.refit_at = 0
        self.coefficients = np.zeros(form.terms) if coefficients is None else coefficients
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

    def current_grid(self) -> Array:
        """Speeds of the form, shape (17, 17), fitted anew if enough was seen since the last fit."""
        if self.count >= self.refit_at:
            self.coefficients = self._solve()
            self.refit_at = self.count + max(1, int(REFIT_GROWTH * self.count))
            self.grid = None
        if self.grid is None:
            self.grid = form_grid(self.form, self.coefficients)
            for index, cell in self.cells.items():
                if cell.dead:
                    self.grid[index] = 0.0
            self.grid.setflags(write=False)
        return self.grid

    def _solve(self) -> Array:
        """Coefficients in seconds per sample, shape (terms,), from all live cells and the prior."""
        seen = [
            (ps, workers, cell.seconds / cell.samples, cell.count)
            for (ps, workers), cell in self.cells.items()
            if cell.samples > 0
        ]
        if not seen:
            return unseen_coefficients(self.form)
        ps, workers, times, counts = np.array(seen, dtype=np.float64).T
        features = self.form.features(ps, workers)
        precision = 1 / (SHAPE_ERROR**2 + NOISE**2 / counts)
        # The prior says how speeds relate to each other; how fast the type is, only observations say.
        expected = self.form.prior.times(features)
        relative = times / expected
        unit = np.exp(np.average(np.log(relative), weights=precision))
        times = np.clip(relative, unit / FARTHEST, unit * FARTHEST) * expected
        rows = features * (unit / times)[:, None]
        weighted = rows * precision[:, None]
        pseudo_rows, pseudo_targets = self.form.prior_rows
        # Solved through the normal equations: the cost does not grow with the number of cells.
        lower = np.linalg.cholesky(rows.T @ weighted + pseudo_rows.T @ pseudo_rows)
        moment = weighted.sum(axis=0) + pseudo_rows.T @ pseudo_targets
        solution, _ = nnls(lower.T, np.linalg.solve(lower, moment))
        return np.asarray(solution * unit, dtype=np.float64)

    def snapshot(self) -> dict[str, object]:
        return {
            "kind": self.form.kind.value,
            "cells": [
                [ps, workers, cell.samples, cell.seconds, cell.count] for (ps, workers), cell in self.cells.items()
            ],
            "coefficients": self.coefficients.tolist(),
            "refit_at": self.refit_at,
        }

    @classmethod
    def restored(cls, entry: Any) -> _TypeFit:
        """Rebuild from `snapshot`'s value; raises KeyError, TypeError or ValueError if it is something else."""
        # Snapshots from before there were other kinds do not name it.
        form = FORMS[JobKind(entry.get("kind", JobKind.PS))]
        fit = cls(form, np.array([float(value) for value in entry["coefficients"]]))
        fit.refit_at = int(entry["refit_at"])
        usable = fit.coefficients.shape == (form.terms,) and np.isfinite(fit.coefficients).all()
        # All zero is what a type has that was observed but never asked for: its first fit is due.
        if not (usable and (fit.coefficients >= 0).all() and (fit.coefficients.any() or fit.refit_at == 0)):
            raise ValueError(f"impossible coefficients {entry['coefficients']}")
        for ps, workers, samples, seconds, count in entry["cells"]:
            if not (form.has_cell(ps, workers) and _possible(samples, seconds) and count > 0):
                raise ValueError(f"impossible observation {[ps, workers, samples, seconds, count]}")
            fit.cells[int(ps), int(workers)] = _Cell(float(samples), float(seconds), int(count))
            fit.count += int(count)
        return fit


class OnlineFit:
    """`Beliefs` that start from a prior and sharpen with every progress report.

    Deterministic: the same calls in the same order, also across a snapshot, give the same grids bit for bit. What kinds
    types have is introduced anew after a restore; of those that were observed, the snapshot says it.
    """

    def __init__(self) -> None:
        self._types: dict[str, _TypeFit] = {}
        self._kinds: dict[str, JobKind] = {}
        self._unseen = {kind: form_grid(form, unseen_coefficients(form)) for kind, form in FORMS.items()}
        for grid in self._unseen.values():
            grid.setflags(write=False)

    def introduce(self, jobs: Iterable[Job]) -> None:
        """Learn of what kind the types of these jobs are; see `Beliefs`."""
        for job in jobs:
            self._kinds.setdefault(job.job_type, job.kind)

    def observe(self, progress: Sequence[Progress]) -> None:
        """Take in what jobs did; entries without any time, or with tasks that cannot train, say nothing about speed."""
        for entry in progress:
            ps, workers = entry.allocation.ps, entry.allocation.workers
            fit = self._types.get(entry.job_type)
            form = FORMS[self._kind_of(entry)] if fit is None else fit.form
            if not (form.has_cell(ps, workers) and _possible(entry.samples, entry.seconds)):
                continue
            if fit is None:
                fit = self._types[entry.job_type] = _TypeFit(form)
            fit.observe((ps, workers), entry.samples, entry.seconds)

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        """Believed speed in samples/s; 0 for allocations that cannot train and dead cells."""
        return float(self.grid(job_type)[ps, workers])

    def grid(self, job_type: str) -> Array:
        """Believed speeds in samples/s, shape (17, 17), [ps, workers]; the same array until the belief changes."""
        fit = self._types.get(job_type)
        return self._unseen[self._kinds.get(job_type, JobKind.PS)] if fit is None else fit.current_grid()

    def allocations_seen(self, job_type: str) -> frozenset[Allocation]:
        """The allocations in which this type was observed."""
        fit = self._types.get(job_type)
        return frozenset() if fit is None else frozenset(Allocation(workers, ps) for ps, workers in fit.cells)

    def coefficients(self, job_type: str) -> tuple[float, ...]:
        """The fitted seconds per sample of the form's terms, as of the last fit."""
        fit = self._types.get(job_type)
        if fit is None:
            return tuple(unseen_coefficients(FORMS[self._kinds.get(job_type, JobKind.PS)]).tolist())
        fit.current_grid()
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

    def _kind_of(self, entry: Progress) -> JobKind:
        """The kind of a type that was never observed; one that trains without servers needs no introduction."""
        known = self._kinds.get(entry.job_type)
        if known is None:
            return JobKind.ALLREDUCE if entry.allocation.ps == 0 and entry.samples > 0 else JobKind.PS
        return known


def unseen_coefficients(form: SpeedForm) -> Array:
    """Seconds per sample of the form's terms for a type of which nothing is known."""
    return np.array(form.prior.shape) / form.prior.samples_per_second


def form_grid(form: SpeedForm, coefficients: Array) -> Array:
    """Speeds of a fitted form, shape (17, 17); zero where the kind cannot train."""
    grid = np.zeros((SIDE, SIDE))
    part = grid[form.cells]
    part[:] = (1 / (form.cell_features @ coefficients)).reshape(part.shape)
    return grid
