"""Belief about one job type: the observations, and when they call for another fit.

Reports are added up per allocation ("cell"). A fit is not made for every report but when the observations have grown by
some share since the last one, so that the work per report falls with their number; a first look at a cell, and its
death or return to life, call for a fit at once.
"""

from __future__ import annotations

import hashlib
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import JobKind
from policy_net.exchange.statistics import LARGEST_LOG_SPEED
from policy_net.throughput.form import FORMS, SpeedForm

Array = NDArray[np.float64]

NOISE = 0.27
"""Relative deviation of one observation: the run-to-run variation that DL2 §6 reports from production, 27.3%."""
DEAD_AFTER_SECONDS = 600.0
"""A cell in which a type did nothing for this long is believed to be unable to train, until a sample is seen in it."""
FARTHEST = 100.0
"""A cell counts as at most this many times faster or slower than the type's mean at the prior's shape: beyond that it
is a fault in the report or the cluster, and would drown all others."""


_LARGEST = math.exp(LARGEST_LOG_SPEED)


def clipped(speeds: Array) -> Array:
    """Speeds in samples/s, or their inverse, none beyond what a statistic can say: their logarithms can be fitted."""
    return np.clip(speeds, 1 / _LARGEST, _LARGEST)


def speeds_from_logs(logs: Array) -> Array:
    """Speeds of which the logarithms were fitted; a fit may go far beyond what it was fitted to, and stays finite."""
    return np.asarray(np.exp(np.clip(logs, -2 * LARGEST_LOG_SPEED, 2 * LARGEST_LOG_SPEED)), dtype=np.float64)


def is_possible(samples: float, seconds: float) -> bool:
    """Whether a job can have trained so many samples in so much time."""
    return 0 <= samples < math.inf and 0 < seconds < math.inf


@dataclass(slots=True)
class Cell:
    """What was seen of a type in one allocation."""

    samples: float = 0.0
    seconds: float = 0.0
    count: int = 0

    @property
    def dead(self) -> bool:
        """Whether the type is believed to be unable to train there."""
        return self.samples <= 0 and self.seconds >= DEAD_AFTER_SECONDS


Cells = dict[tuple[int, int], Cell]
"""By (PSs, workers)."""


class TypeBelief(ABC):
    """All cells of one type, and a fit to them; `refit_at` is the number of observations that calls for the next."""

    refit_growth: ClassVar[float]

    def __init__(self, form: SpeedForm) -> None:
        self.form = form
        self.cells: Cells = {}
        self.count = 0
        self.refit_at = 0
        self._grid: Array | None = None
        self._digest: tuple[tuple[int, int], bytes] | None = None

    @abstractmethod
    def _fit(self) -> None:
        """Fit to the cells as they are now."""

    @abstractmethod
    def _fitted_speeds(self) -> Array:
        """Speeds of the last fit, of the form's shape, zero where the kind cannot train; dead cells need not be."""

    @abstractmethod
    def _fit_snapshot(self) -> dict[str, object]:
        """The last fit as JSON-able values."""

    @abstractmethod
    def _restore_fit(self, entry: Any) -> None:
        """Take up the last fit; raises KeyError, TypeError or ValueError if `entry` does not hold one."""

    def observe(self, index: tuple[int, int], samples: float, seconds: float) -> bool:
        """Add one report; whether it was believed."""
        cell = self.cells.get(index)
        if cell is None:
            cell = self.cells[index] = Cell()
            self.refit_at = 0
        was_dead = cell.dead
        cell.samples = min(cell.samples + samples, sys.float_info.max)
        cell.seconds = min(cell.seconds + seconds, sys.float_info.max)
        cell.count += 1
        self.count += 1
        if cell.dead != was_dead:
            self.refit_at = 0
        return True

    def grid(self) -> Array:
        """Believed speeds, of the form's shape, read-only, fitted anew if enough was seen since the last fit."""
        if self.count >= self.refit_at:
            self._fit()
            self.refit_at = self.count + max(1, int(self.refit_growth * self.count))
            self._grid = None
        return self.grid_of_last_fit()

    def grid_of_last_fit(self) -> Array:
        """As `grid`, and never fitted anew."""
        if self._grid is None:
            self._grid = self._fitted_speeds()
            for index, cell in self.cells.items():
                if cell.dead:
                    self._grid[index] = 0.0
            self._grid.setflags(write=False)
        return self._grid

    def fit_to(self, cells: Cells) -> Array:
        """Take these for all that was seen, and fit to it; gives `fitted_speeds`."""
        self.cells = cells
        self.count = sum(cell.count for cell in cells.values())
        self._fit()
        self._grid = None
        return self._fitted_speeds()

    def fitted_speeds(self) -> Array:
        """Speeds of the last fit, of the form's shape; of dead cells too, as if they were not."""
        return self._fitted_speeds()

    def snapshot(self) -> dict[str, object]:
        """Observations and fit as JSON-able values."""
        return {
            "kind": self.form.kind.value,
            "cells": cell_rows(self.cells),
            "refit_at": self.refit_at,
            **self._fit_snapshot(),
        }

    @abstractmethod
    def _fit_figures(self) -> Sequence[float]:
        """The figures of the last fit, one after another."""

    def digest(self) -> bytes:
        """SHA-256 over observations and fit."""
        # Every observation raises the count, and every fit or call for one changes `refit_at`.
        state = (self.count, self.refit_at)
        if self._digest is None or self._digest[0] != state:
            figures = [float(self.refit_at), float(len(self.cells)), *flat_cells(self.cells), *self._fit_figures()]
            self._digest = (state, hashlib.sha256(np.array(figures, dtype="<f8").tobytes()).digest())
        return self._digest[1]

    @classmethod
    def restored(cls, entry: Mapping[str, Any]) -> Self:
        """Rebuild from `snapshot`'s value; raises KeyError, TypeError or ValueError if it is something else."""
        # Snapshots from before there were other kinds do not name it.
        belief = cls(FORMS[JobKind(entry.get("kind", JobKind.PS))])
        belief.refit_at = int(entry["refit_at"])
        belief.cells = read_cells(belief.form, entry["cells"])
        belief.count = sum(cell.count for cell in belief.cells.values())
        belief._restore_fit(entry)
        return belief


def cell_rows(cells: Mapping[tuple[int, int], Cell]) -> list[list[float]]:
    """Cells as JSON-able values, in their order."""
    return [[ps, workers, cell.samples, cell.seconds, cell.count] for (ps, workers), cell in cells.items()]


def flat_cells(cells: Mapping[tuple[int, int], Cell]) -> list[float]:
    """The figures of `cell_rows`, one after another."""
    return [
        figure
        for (ps, workers), cell in cells.items()
        for figure in (ps, workers, cell.samples, cell.seconds, cell.count)
    ]


def read_cells(form: SpeedForm, rows: Sequence[Any]) -> Cells:
    """The inverse of `cell_rows`; raises TypeError or ValueError for rows that cannot have been observed."""
    cells: Cells = {}
    for ps, workers, samples, seconds, count in rows:
        if not (form.has_cell(ps, workers) and is_possible(samples, seconds) and count > 0):
            raise ValueError(f"impossible observation {[ps, workers, samples, seconds, count]}")
        cells[int(ps), int(workers)] = Cell(float(samples), float(seconds), int(count))
    return cells
