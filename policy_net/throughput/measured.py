"""Speeds fitted to points that were measured beforehand, instead of online.

Non-negative least squares on relative errors over all points of a type, in the form of its kind (`form.py`). Points
with speed 0 are left out: they say that something failed, not how fast the type is.
Source: Optimus (EuroSys 2018) §3.2, which fits its model to a few runs of every job on sampled data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import JobKind
from policy_net.errors import BadInput
from policy_net.throughput.form import FORMS, SpeedForm, form_grid


@dataclass(frozen=True, slots=True)
class SpeedPoint:
    """The speed of a type that somebody measured in one allocation."""

    ps: int
    workers: int
    samples_per_second: float


class MeasuredFit:
    """A `SpeedModel` that was fitted once and does not learn."""

    def __init__(self, points: Mapping[str, Sequence[SpeedPoint]], origin: str) -> None:
        """Fit every type of `points`, all of which have servers, or none; `origin` names their source in messages.

        Raises:
            BadInput: a type has too few points that can be used.
        """
        self._origin = origin
        self._coefficients: dict[str, tuple[float, ...]] = {}
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
            coefficients = _fit(form, usable)
            self._coefficients[job_type] = tuple(coefficients.tolist())
            grid = self._grids[job_type] = form_grid(form, coefficients)
            grid.setflags(write=False)

    def require(self, job_types: Iterable[str]) -> None:
        """Raises BadInput if any of these types has no points."""
        for job_type in job_types:
            self.grid(job_type)

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        """Fitted speed in samples/s. Raises BadInput for a type without points."""
        return float(self.grid(job_type)[ps, workers])

    def grid(self, job_type: str) -> NDArray[np.float64]:
        """Fitted speeds in samples/s, shape (17, 17), [ps, workers]; read-only. BadInput for a type without points."""
        grid = self._grids.get(job_type)
        if grid is None:
            raise BadInput(f"no points for model {job_type!r} in {self._origin}: it has {', '.join(self._grids)}")
        return grid

    def coefficients(self, job_type: str) -> tuple[float, ...]:
        """The fitted seconds per sample of the form's terms; KeyError for a type without points."""
        return self._coefficients[job_type]


def _fit(form: SpeedForm, points: Sequence[SpeedPoint]) -> NDArray[np.float64]:
    """Coefficients in seconds per sample, shape (terms,): the relative error of every point counts alike."""
    ps, workers, speeds = np.array([(point.ps, point.workers, point.samples_per_second) for point in points]).T
    # Scaled to the type's mean speed, so that the solver sees numbers around 1.
    unit = speeds.mean()
    from scipy.optimize import nnls  # noqa: PLC0415  (a third of every program's start, and few of them fit)

    solution, _ = nnls(form.features(ps, workers) * (speeds / unit)[:, None], np.ones(len(speeds)))
    return np.asarray(solution / unit, dtype=np.float64)
