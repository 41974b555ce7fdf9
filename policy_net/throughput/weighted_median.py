"""The weighted median: where half of the weight lies on either side; half-way between two values where it is a tie."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def weighted_median(values: Array, weights: Array) -> float:
    """The median of values, shape (n,), that count as often as their weight; those of weight 0 may be NaN.

    Raises:
        ValueError: nothing has any weight.
    """
    counted = weights > 0
    if not counted.any():
        raise ValueError("a weighted median needs a value with a weight")
    order = np.argsort(values[counted], kind="stable")
    ordered, reached = values[counted][order], np.cumsum(weights[counted][order])
    half = reached[-1] / 2
    lower = int(np.searchsorted(reached, half))
    upper = int(np.searchsorted(reached, half, side="right"))
    return float((ordered[lower] + ordered[min(upper, len(ordered) - 1)]) / 2)
