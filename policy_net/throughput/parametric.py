"""Speeds in the form that Optimus found to describe distributed training (`form.py`): learned online, or fitted once.

`OnlineFit` is fitted by non-negative least squares on relative errors, per type, to the mean speed observed in every
allocation. `MeasuredFit` is fitted once, to points that somebody measured; points with speed 0 are left out: they say
that something failed, not how fast the type is.
Source: Optimus (EuroSys 2018) §3.2, which fits its model to a few runs of every job on sampled data.
Deviation: Optimus runs every new job on sampled data under a few allocations first. Here a type starts from
pseudo-observations of an optimistic shape (`form.py`), and all jobs of a type share one fit; what a scheduler does so
that enough different allocations are seen is its own affair (`probing.py`). All-reduce types have a form of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import JobKind, speed_at
from policy_net.errors import BadInput
from policy_net.throughput.beliefs import BeliefsByType
from policy_net.throughput.form import FORMS, SpeedForm, form_grid
from policy_net.throughput.nonnegative import nonnegative_fit, nonnegative_of_moments
from policy_net.throughput.type_belief import FARTHEST, NOISE, TypeBelief, clipped

Array = NDArray[np.float64]

SHAPE_ERROR = 0.15
"""Relative error that the form itself makes in a cell (median 8%, with larger outliers, over DL2's eight models)."""


class TypeFit(TypeBelief):
    """One type's coefficients, all zero before the first fit."""

    refit_growth = 0.2

    def __init__(self, form: SpeedForm) -> None:
        super().__init__(form)
        self.coefficients: Array = np.zeros(form.terms)

    def _fit(self) -> None:
        row_of = self.form.row_of
        seen = [
            (row_of[place], cell.seconds / cell.samples, cell.count)
            for place, cell in self.cells.items()
            if cell.samples > 0
        ]
        if not seen:
            self.coefficients = self.form.unseen_coefficients
            return
        # What follows from the cells alone is looked up: a scheduler fits some hundreds of times a thousand jobs. Sums
        # are taken in the order of the cells, as the compiled twin takes them.
        chosen = [row for row, _, _ in seen]
        features, expected = self.form.cell_features[chosen], self.form.expected_times[chosen]
        times = clipped(np.array([time for _, time, _ in seen]))
        counts = np.array([count for *_, count in seen], dtype=np.float64)
        precision = 1 / (SHAPE_ERROR * SHAPE_ERROR + NOISE * NOISE / counts)
        # The prior says how speeds relate to each other; how fast the type is, only observations say.
        relative = times / expected
        logs = [weight * math.log(time) for weight, time in zip(precision.tolist(), relative.tolist(), strict=True)]
        unit = math.exp(_sum(logs) / _sum(precision.tolist()))
        times = np.minimum(np.maximum(relative, unit / FARTHEST), unit * FARTHEST) * expected
        rows = features * (unit / times)[:, None]
        weighted = rows * precision[:, None]
        of_prior, moment_of_prior = self.form.prior_moments
        # Solved through the normal equations: the cost does not grow with the number of cells.
        moments = (rows[:, :, None] * weighted[:, None, :]).cumsum(axis=0)[-1] + of_prior
        target = weighted.cumsum(axis=0)[-1] + moment_of_prior
        found = nonnegative_of_moments(moments.tolist(), target.tolist())
        if found is None:  # squares of figures that lie too far apart
            root, (pseudo_rows, pseudo_targets) = np.sqrt(precision), self.form.prior_rows
            matrix, targets = np.vstack([rows * root[:, None], pseudo_rows]), np.append(root, pseudo_targets)
            found = nonnegative_fit(matrix, targets).tolist()
        self.coefficients = np.array(found) * unit

    def _fitted_speeds(self) -> Array:
        times = self.form.cell_features[:, 0] * self.coefficients[0]
        for term in range(1, self.form.terms):
            times = times + self.form.cell_features[:, term] * self.coefficients[term]
        grid = np.zeros(self.form.shape)
        part = grid[self.form.cells]
        part[:] = (1 / times).reshape(part.shape)
        return grid

    def _fit_snapshot(self) -> dict[str, object]:
        return {"coefficients": self.coefficients.tolist()}

    def _fit_figures(self) -> list[float]:
        return self.coefficients.tolist()  # type: ignore[no-any-return]  # numpy's stubs

    def _restore_fit(self, entry: Any) -> None:
        self.coefficients = np.array([float(value) for value in entry["coefficients"]])
        usable = self.coefficients.shape == (self.form.terms,) and np.isfinite(self.coefficients).all()
        # All zero is what a type has that was observed but never asked for: its first fit is due.
        if not (usable and (self.coefficients >= 0).all() and (self.coefficients.any() or self.refit_at == 0)):
            raise ValueError(f"impossible coefficients {entry['coefficients']}")


def _sum(values: Sequence[float]) -> float:
    """One after another: how Python's own sum rounds depends on its version."""
    total = 0.0
    for value in values:
        total += value
    return total


class OnlineFit(BeliefsByType[TypeFit]):
    """`Beliefs` in Optimus's form."""

    optimistic = False

    def __init__(self) -> None:
        super().__init__(TypeFit)


@dataclass(frozen=True, slots=True)
class SpeedPoint:
    """The speed of a type that somebody measured in one allocation."""

    ps: int
    workers: int
    samples_per_second: float


class MeasuredFit:
    """A `SpeedModel` that was fitted once, on relative errors over all points of a type, and does not learn."""

    def __init__(self, points: Mapping[str, Sequence[SpeedPoint]], origin: str) -> None:
        """Fit every type of `points`, all of which have servers, or none; `origin` names their source in messages.

        Raises:
            BadInput: a type has too few points that can be used.
        """
        self._origin = origin
        self._grids: dict[str, NDArray[np.float64]] = {}
        for job_type, of_type in points.items():
            # The points do not say which type is asynchronous.
            form = FORMS[JobKind.PS if any(point.ps for point in of_type) else JobKind.ALLREDUCE]
            usable = [point for point in of_type if point.samples_per_second > 0]
            if len(usable) < form.terms:
                raise BadInput(
                    f"{origin}: model {job_type!r} has {len(usable)} points with a speed above 0;"
                    f" the fit needs {form.terms} or more"
                )
            grid = self._grids[job_type] = form_grid(form, _fit_points(form, usable))
            grid.setflags(write=False)

    def require(self, job_types: Iterable[str]) -> None:
        """Raises BadInput if any of these types has no points."""
        for job_type in job_types:
            self.grid(job_type)

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        """Fitted speed in samples/s. Raises BadInput for a type without points."""
        return speed_at(self.grid(job_type), ps, workers)

    def grid(self, job_type: str) -> NDArray[np.float64]:
        """Fitted speeds in samples/s [ps, workers]; read-only. BadInput for a type without points."""
        grid = self._grids.get(job_type)
        if grid is None:
            raise BadInput(f"no points for model {job_type!r} in {self._origin}: it has {', '.join(self._grids)}")
        return grid


def _fit_points(form: SpeedForm, points: Sequence[SpeedPoint]) -> NDArray[np.float64]:
    """Coefficients in seconds per sample, shape (terms,): the relative error of every point counts alike."""
    ps, workers, speeds = np.array([(point.ps, point.workers, point.samples_per_second) for point in points]).T
    # Scaled to the type's mean speed, so that the solver sees numbers around 1.
    unit = speeds.mean()
    solution = nonnegative_fit(form.features(ps, workers) * (speeds / unit)[:, None], np.ones(len(speeds)))
    return np.asarray(solution / unit, dtype=np.float64)
