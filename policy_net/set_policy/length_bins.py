"""Bins of a job's length, from ten seconds to half a year at its reference speed, and beliefs of them to start from."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BINS = 36
FIRST_EDGE_SECONDS = 10.0
EDGE_RATIO = 1.5
"""A bin's jobs differ by half."""

PRIOR_JOBS = 8.0
"""The prior weighs as much as so many jobs in every bin that reached it."""
PRIOR_TAIL = 1.0
"""Exponent of the Pareto tail that is believed before jobs have ended: as much again as a job has trained (median)."""
PRIOR_FIRST_SHARE = 0.1
"""Share of jobs that are believed to end in the first bin."""

EDGES: Array = np.array(FIRST_EDGE_SECONDS * EDGE_RATIO ** np.arange(BINS), dtype=np.float64)
STARTS: Array = np.concatenate(([0.0], EDGES[:-1]))
WIDTHS: Array = EDGES - STARTS
PRIOR_HAZARDS: Array = np.array([PRIOR_FIRST_SHARE, *[1.0 - EDGE_RATIO**-PRIOR_TAIL] * (BINS - 1)])
_EDGE_LIST: list[float] = EDGES.tolist()


def bin_of(seconds: float) -> int:
    """The bin of a length; the last one has no end."""
    return min(bisect_left(_EDGE_LIST, seconds), BINS - 1)


def counts_of(values: Any) -> Array:
    """Counts of all bins, as a snapshot has them, shape (B,).

    Raises:
        ValueError: they are no counts.
    """
    counts = np.array([float(value) for value in values])
    if counts.shape != (BINS,) or not (np.isfinite(counts).all() and (counts >= 0.0).all()):
        raise ValueError(f"{len(values)} bins that are no counts")
    return counts
