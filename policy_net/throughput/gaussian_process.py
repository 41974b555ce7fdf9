"""Speeds learned online by a Gaussian process per type, and raised where they are uncertain.

The logarithm of a type's speed, over log p and log w, is the prior's shape (`form.py`) plus four unknown parts: the
type's own scale, a trend in each role, a smooth deviation, and an effect of every single cell. The last is real: how
parameters happen to divide over servers makes neighbouring cells differ by 10–20%. So a few observations say much about
their neighbourhood, and many about themselves, where a sum of a few terms (`parametric.py`) is bound to its form.

What a planner is given is not the mean but mean + OPTIMISM standard deviations: it then tries by itself what may be
better, and is corrected where it is not; a planner that follows the mean keeps to what it knows. Beliefs of this kind
need no probes.
Source: Gaussian-process regression (Rasmussen & Williams 2006, algorithm 2.1); optimism as in GP-UCB (Srinivas et al.
2010). The figures below were chosen on generated DL2 workloads; see docs/decisions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from policy_net.domain import JobKind
from policy_net.throughput.by_type import BeliefsByType
from policy_net.throughput.form import FORMS, SIDE, SpeedForm
from policy_net.throughput.type_belief import FARTHEST, NOISE, Cell, Cells, TypeBelief, cell_rows, read_cells

Array = NDArray[np.float64]

OPTIMISM = 1.0
"""Standard deviations by which a belief is raised; 0.75 and 1.25 were worse."""
SCALE_SD = 3.0
"""Of the log of a type's scale: nothing is known of it before the first observation."""
SMOOTH_LENGTH = 1.5
"""Over which the smooth deviation changes, in log p and log w: a factor of 4.5 in the number of tasks."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How far a type's log speed may be from the prior's shape, as standard deviations.

    Attributes:
        trend: of the slope in log p, and in log w.
        smooth: of the smooth deviation.
        cell: of the effect of a single cell.
    """

    trend: float
    smooth: float
    cell: float


WITH_SERVERS = Spread(trend=0.5, smooth=0.6, cell=0.1)
"""Cell effects of 0.2 make a planner try too many cells: 1% longer JCTs."""
SPREADS: Mapping[JobKind, Spread] = MappingProxyType(
    {
        JobKind.PS: WITH_SERVERS,
        JobKind.ASYNC: WITH_SERVERS,
        JobKind.ALLREDUCE: Spread(trend=0.2, smooth=0.2, cell=0.03),
    }
)
"""By kind: how an all-reduce type scales is close to its form, and nothing is divided over servers."""


@dataclass(frozen=True)
class _Prior:
    """The process over all n cells of a kind, before any observation.

    Attributes:
        spread: of the kind.
        mean: log of the prior's speeds, shape (n,).
        smooth: covariance of all but the cells' own effects, shape (n, n).
        position: of a cell (PSs, workers) among the n.
    """

    spread: Spread
    mean: Array
    smooth: Array
    position: dict[tuple[int, int], int]


@cache
def _prior_of(kind: JobKind) -> _Prior:
    form, spread = FORMS[kind], SPREADS[kind]
    ps, workers = (axis[form.cells].ravel() for axis in np.indices((SIDE, SIDE)))
    axes = (np.log(np.maximum(ps, 1)), np.log(workers))
    distance = sum((np.subtract.outer(axis, axis) / SMOOTH_LENGTH) ** 2 for axis in axes)
    trend = spread.trend**2 * sum(np.outer(axis, axis) for axis in axes)
    smooth = SCALE_SD**2 + trend + spread.smooth**2 * np.exp(-0.5 * np.asarray(distance))
    mean = -np.log(form.cell_features @ form.unseen_coefficients)
    position = {cell: index for index, cell in enumerate(zip(ps.tolist(), workers.tolist(), strict=True))}
    return _Prior(spread, mean, smooth, position)


class TypeProcess(TypeBelief):
    """One type's process; the fit is the cells that it was conditioned on, and what follows from them."""

    refit_growth = 0.1

    def __init__(self, form: SpeedForm) -> None:
        super().__init__(form)
        self._conditioned_on: Cells = {}

    def _fit(self) -> None:
        self._conditioned_on = {
            index: Cell(cell.samples, cell.seconds, cell.count)
            for index, cell in self.cells.items()
            if cell.samples > 0
        }

    def posterior(self) -> tuple[Array, Array]:
        """Mean and standard deviation of the log speed in every cell of the form, shape (n,), as of the last fit."""
        prior = _prior_of(self.form.kind)
        spread = prior.spread
        variance = prior.smooth.diagonal() + spread.cell**2
        if not self._conditioned_on:
            return prior.mean, np.sqrt(variance)
        seen = np.array([prior.position[index] for index in self._conditioned_on])
        speeds, counts = np.array(
            [(cell.samples / cell.seconds, cell.count) for cell in self._conditioned_on.values()]
        ).T
        noise = NOISE**2 / counts
        # The mean of the log lies below the log of the mean, by half the variance.
        residual = np.log(speeds) - noise / 2 - prior.mean[seen]
        unit = np.average(residual, weights=1 / (spread.smooth**2 + noise))
        farthest = math.log(FARTHEST)
        residual = np.clip(residual - unit, -farthest, farthest)
        own = np.arange(len(seen))
        covariance = prior.smooth[np.ix_(seen, seen)]
        covariance[own, own] += spread.cell**2 + noise
        cross = prior.smooth[seen]
        cross[own, seen] += spread.cell**2
        lower = np.linalg.cholesky(covariance)
        explained = solve_triangular(lower, cross, lower=True, check_finite=False)
        mean = explained.T @ solve_triangular(lower, residual, lower=True, check_finite=False)
        variance = np.maximum(variance - (explained**2).sum(axis=0), 0.0)
        return prior.mean + unit + np.clip(mean, -2 * farthest, 2 * farthest), np.sqrt(variance)

    def _fitted_speeds(self) -> Array:
        mean, sd = self.posterior()
        # Nothing is known of the scale of a type of which no speed was seen: that is no reason to expect much of it.
        return self.on_grid(np.exp(mean + OPTIMISM * sd) if self._conditioned_on else np.exp(mean))

    def on_grid(self, values: Array) -> Array:
        """Values of the form's cells on a grid [ps, workers], shape (17, 17), with zeros elsewhere."""
        grid = np.zeros((SIDE, SIDE))
        part = grid[self.form.cells]
        part[:] = values.reshape(part.shape)
        return grid

    def _fit_snapshot(self) -> dict[str, object]:
        return {"conditioned_on": cell_rows(self._conditioned_on)}

    def _restore_fit(self, entry: Any) -> None:
        self._conditioned_on = read_cells(self.form, entry["conditioned_on"])
        if any(cell.samples <= 0 for cell in self._conditioned_on.values()):
            raise ValueError("a fit to a cell without a sample")


class GaussianProcessBeliefs(BeliefsByType[TypeProcess]):
    """`Beliefs` by Gaussian processes, optimistic where they are uncertain."""

    optimistic = True

    def __init__(self) -> None:
        super().__init__(TypeProcess)

    def posterior(self, job_type: str) -> tuple[Array, Array]:
        """What is believed without optimism, as of the last fit.

        Returns:
            The median speed in samples/s and the standard deviation of its logarithm, both of shape (17, 17) [ps,
            workers] and 0 where the type cannot train; dead cells have speed 0.
        """
        process = self._types.get(job_type)
        if process is None:
            process = TypeProcess(FORMS[self._kinds.get(job_type, JobKind.PS)])
        believed = process.grid()
        mean, sd = process.posterior()
        return np.where(believed > 0, process.on_grid(np.exp(mean)), 0.0), process.on_grid(sd)
