"""Medians that leave gaps out, weighted and plain, of many columns or rows at once.

The weighted median is where half of the weight lies on either side; half-way between two values where it is a tie.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def weighted_medians(values: Array, weights: Array) -> Array:
    """The medians of the columns of values, shape (n, m), that count as often as their weight.

    Those of weight 0 may be NaN; a column without any weight has the median NaN.
    """
    counted = np.where(weights > 0, values, np.inf)
    order = np.argsort(counted, axis=0, kind="stable")
    ordered = np.take_along_axis(counted, order, axis=0)
    reached = np.cumsum(np.take_along_axis(weights, order, axis=0), axis=0)
    half = reached[-1] / 2
    last = np.maximum((weights > 0).sum(axis=0) - 1, 0)
    lower = np.minimum((reached < half).sum(axis=0), last)
    upper = np.minimum((reached <= half).sum(axis=0), last)
    columns = np.arange(values.shape[1])
    middle = (ordered[lower, columns] + ordered[upper, columns]) / 2
    return np.asarray(np.where(half > 0, middle, np.nan), dtype=np.float64)


def weighted_median(values: Array, weights: Array) -> float:
    """The median of values, shape (n,), as of one column of `weighted_medians`.

    Raises:
        ValueError: nothing has any weight.
    """
    if not (weights > 0).any():
        raise ValueError("a weighted median needs a value with a weight")
    return float(weighted_medians(values[:, None], weights[:, None])[0])


def row_medians(values: Array) -> Array:
    """The medians of the rows of values, shape (n, m), without their NaNs; every row must have a number."""
    ordered = np.sort(values, axis=1)  # NaNs come last
    numbers = (~np.isnan(values)).sum(axis=1)
    rows = np.arange(len(values))
    return np.asarray((ordered[rows, (numbers - 1) // 2] + ordered[rows, numbers // 2]) / 2, dtype=np.float64)
