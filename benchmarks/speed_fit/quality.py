"""One row of every report: how far a fit is from what was measured, relative to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Array = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FitError:
    """Errors of shipped constants, and of points that constants of the same form were not fitted to.

    Attributes:
        what: the model, and whose measurement where several measured it.
        held_out: how points were held out; empty where they are too few.
    """

    what: str
    points: int
    median_error: float
    max_error: float
    held_out: str = ""
    held_out_median_error: float | None = None
    held_out_max_error: float | None = None


def row(what: str, errors: Array, held_out: str = "", held_out_errors: Array | None = None) -> FitError:
    """Sum errors up."""
    if held_out_errors is None:
        return FitError(what, len(errors), float(np.median(errors)), float(errors.max()))
    return FitError(
        what,
        len(errors),
        float(np.median(errors)),
        float(errors.max()),
        held_out,
        float(np.median(held_out_errors)),
        float(held_out_errors.max()),
    )


def relative(fit: Array, measured: Array) -> Array:
    """|fit − measured| / measured."""
    return np.asarray(np.abs(fit - measured) / measured)


def fit_times(features: Array, seconds: Array, known: Array | float = 0.0) -> Array:
    """Constants ≥ 0 with the least squared relative error of times, of which a part may be known; (features,)."""
    solution, _ = nnls(features / seconds[:, None], np.maximum(seconds - known, 0.0) / seconds)
    return np.asarray(solution, dtype=np.float64)


def crossed(
    points: Sequence[T], fold_of: Callable[[int, T], int], errors: Callable[[list[T], list[T]], Array]
) -> Array:
    """Errors of every point, each predicted from the folds that it is not in.

    Args:
        fold_of: the fold of a point by its position.
        errors: of the second list after a fit to the first.
    """
    folds = [fold_of(index, point) for index, point in enumerate(points)]
    found: list[float] = []
    for fold in dict.fromkeys(folds):
        rest = [point for point, its in zip(points, folds, strict=True) if its != fold]
        left = [point for point, its in zip(points, folds, strict=True) if its == fold]
        found += errors(rest, left).tolist()
    return np.array(found)
