"""Speeds learned online, in the form that Optimus found to describe distributed training (`form.py`).

Fitted by non-negative least squares on relative errors, per type, to the mean speed observed in every allocation.
Source: Optimus (EuroSys 2018) §3.2.
Deviation: Optimus runs every new job on sampled data under a few allocations first. Here a type starts from
pseudo-observations of an optimistic shape (`prior.py`), and all jobs of a type share one fit; what a scheduler does so
that enough different allocations are seen is its own affair (`probing.py`). All-reduce types have a form of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import JobKind
from policy_net.throughput.by_type import BeliefsByType
from policy_net.throughput.form import FORMS, SpeedForm, form_grid
from policy_net.throughput.type_belief import FARTHEST, NOISE, TypeBelief

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
        seen = [
            (ps, workers, cell.seconds / cell.samples, cell.count)
            for (ps, workers), cell in self.cells.items()
            if cell.samples > 0
        ]
        if not seen:
            self.coefficients = self.form.unseen_coefficients
            return
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
        from scipy.optimize import nnls  # noqa: PLC0415  (a third of every program's start, and few of them fit)

        solution, _ = nnls(lower.T, np.linalg.solve(lower, moment))
        self.coefficients = np.asarray(solution * unit, dtype=np.float64)

    def _fitted_speeds(self) -> Array:
        return form_grid(self.form, self.coefficients)

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


class OnlineFit(BeliefsByType[TypeFit]):
    """`Beliefs` in Optimus's form."""

    optimistic = False

    def __init__(self) -> None:
        super().__init__(TypeFit)

    def coefficients(self, job_type: str) -> tuple[float, ...]:
        """The fitted seconds per sample of the form's terms, as of the last fit."""
        fit = self._types.get(job_type)
        if fit is None:
            return tuple(FORMS[self._kinds.get(job_type, JobKind.PS)].unseen_coefficients.tolist())
        fit.grid()
        return tuple(fit.coefficients.tolist())
