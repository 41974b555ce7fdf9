"""Priors of the Gaussian process: beliefs about a type's speeds from its kind alone, or from others' reports.

The logarithm of a type's speed, over log p and log w, is the prior's shape (`form.py`) plus four unknown parts: the
type's own scale, a trend in each role, a smooth deviation, and an effect of every single cell. The last is real: how
parameters happen to divide over servers makes neighbouring cells differ by 10–20%.
Source: Gaussian-process regression (Rasmussen & Williams 2006). The figures below were chosen on generated DL2
workloads; see docs/decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import JobKind
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.throughput.form import FORMS
from policy_net.throughput.type_belief import NOISE

Array = NDArray[np.float64]

SCALE_SD = 3.0
"""Of the log of a type's scale: nothing is known of it before the first observation."""
LOCAL_SCALE_SD = 0.5
"""Of the log of a type's scale here against what other clusters reported: other GPUs, other batches."""
LOCAL_CELL_SD = 0.03
"""Of the log of a split's speed here against what others reported, beside the scale."""
SMOOTH_LENGTH = 1.5
"""Over which the smooth deviation changes, in log p and log w: a factor of 4.5 in the number of tasks."""


@dataclass(frozen=True, slots=True)
class PriorSpread:
    """How far a type's log speed may be from the prior's shape, as standard deviations.

    Attributes:
        trend: of the slope in log p, and in log w.
    """

    trend: float
    smooth: float
    cell: float


WITH_SERVERS = PriorSpread(trend=0.5, smooth=0.6, cell=0.1)
"""Cell effects of 0.2 make a planner try too many cells: 1% longer JCTs."""
SPREADS: Mapping[JobKind, PriorSpread] = MappingProxyType(
    {
        JobKind.PS: WITH_SERVERS,
        JobKind.ASYNC: WITH_SERVERS,
        JobKind.ALLREDUCE: PriorSpread(trend=0.2, smooth=0.2, cell=0.03),
    }
)
"""By kind: how an all-reduce type scales is close to its form, and nothing is divided over servers."""


@dataclass(frozen=True)
class Prior:
    """The process over all n cells of a kind, before any observation.

    Attributes:
        mean: log of the prior's speeds, shape (n,).
        smooth: covariance of all but the cells' own effects, shape (n, n).
        position: of a cell (PSs, workers) among the n.
        of_type: whether it is of one type, from the reports of others, and so also knows the scale.
    """

    spread: PriorSpread
    mean: Array
    smooth: Array
    position: dict[tuple[int, int], int]
    of_type: bool = False

    @cached_property
    def sd_of_shape(self) -> Array:
        """Standard deviation in every cell, without that of the scale, of a type of which others have reported."""
        variance = self.smooth.diagonal() + self.spread.cell**2 - LOCAL_SCALE_SD**2
        return np.sqrt(np.maximum(variance, 0.0))

    def sd_of_ratios(self) -> Array:
        """Standard deviation in every cell of the log of its speed over that of the smallest split, shape (n,).

        Of a type of which nothing was seen: its scale, which is not known at all, is in both.
        """
        smallest = self.position[min(self.position, key=sum)]
        variance = self.smooth.diagonal() + self.smooth[smallest, smallest] - 2.0 * self.smooth[smallest]
        variance = variance + 2.0 * self.spread.cell**2
        variance[smallest] = 0.0
        deviation: Array = np.sqrt(np.maximum(variance, 0.0))
        return deviation


@cache
def triangular_solver() -> Callable[..., Array]:
    """SciPy's `solve_triangular`, loaded at the first call: no part of a program takes longer to load."""
    from scipy.linalg import solve_triangular  # noqa: PLC0415

    solver: Callable[..., Array] = solve_triangular
    return solver


@cache
def prior_of_kind(kind: JobKind) -> Prior:
    """The process of a type of which nothing is known but its kind."""
    form, spread = FORMS[kind], SPREADS[kind]
    ps, workers = (axis[form.cells].ravel() for axis in np.indices(form.shape))
    axes = (np.log(np.maximum(ps, 1)), np.log(workers))
    distance = sum((np.subtract.outer(axis, axis) / SMOOTH_LENGTH) ** 2 for axis in axes)
    trend = spread.trend**2 * sum(np.outer(axis, axis) for axis in axes)
    smooth = SCALE_SD**2 + trend + spread.smooth**2 * np.exp(-0.5 * np.asarray(distance))
    mean = -np.log(form.cell_times(form.unseen_coefficients))
    position = {cell: index for index, cell in enumerate(zip(ps.tolist(), workers.tolist(), strict=True))}
    return Prior(spread, mean, smooth, position)


@lru_cache(maxsize=256)  # a policy that is built again and again, as in training, would spend its time here
def prior_of_type(statistics: tuple[SpeedStatistic, ...]) -> Prior:
    """The process that other clusters' reports on one type leave: their posterior, widened by what may differ here.

    Raises:
        ValueError: there is no report.
    """
    if not statistics:
        raise ValueError("a prior of a type needs at least one report")
    kind = statistics[0].kind
    general = prior_of_kind(kind)
    seen = np.array([general.position[entry.ps, entry.workers] for entry in statistics])
    noise = np.array([NOISE**2 / entry.count for entry in statistics])
    residual = np.array([entry.mean_log_speed for entry in statistics]) - general.mean[seen]
    unit = float(np.average(residual, weights=1 / (general.spread.smooth**2 + noise)))
    covariance = general.smooth + general.spread.cell**2 * np.eye(len(general.mean))
    lower = np.linalg.cholesky(covariance[np.ix_(seen, seen)] + np.diag(noise))
    solve = triangular_solver()
    # Part by part, as `form.py` says.
    rows = covariance[seen]
    explained = [solve(lower, rows[:, part], lower=True, check_finite=False) for part in FORMS[kind].parts]
    reported = solve(lower, residual - unit, lower=True, check_finite=False)
    mean = general.mean + unit + np.concatenate([part.T @ reported for part in explained])
    left = covariance - np.block([[one.T @ other for other in explained] for one in explained]) + LOCAL_SCALE_SD**2
    return Prior(replace(general.spread, cell=LOCAL_CELL_SD), mean, left, general.position, of_type=True)


def predicted_by_type(statistics: tuple[SpeedStatistic, ...]) -> dict[tuple[int, int], tuple[float, float]]:
    """By cell (PSs, workers): the log speed that reports on one type let expect, and its standard deviation.

    Raises:
        ValueError: there is no report.
    """
    prior = prior_of_type(statistics)
    values = list(zip(prior.mean.tolist(), prior.sd_of_shape.tolist(), strict=True))
    return {cell: values[position] for cell, position in prior.position.items()}
