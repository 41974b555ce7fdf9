"""What is believed of a job type's speed before it was ever observed.

The prior has the same form as the fit (`parametric.py`): a few pseudo-observations, spread over small and large
allocations, of one shape: more workers and more parameter servers help, with diminishing returns. It is deliberately
on the optimistic side of the eight models that DL2 measured, so that a scheduler tries more than one worker and one
server and learns from it; a pessimistic prior would confirm itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FitPrior:
    """Pseudo-observations for a type that nobody has seen.

    Attributes:
        shape: time per sample at (p, w), relative to (1, 1), as coefficients of 1/w, 1, w/p, w, p; they add up to 1.
        samples_per_second: speed at (1, 1) of a type without any observation. Source: the geometric mean of DL2's eight
            models, 103; it only ranks an unseen type among others until its first observation sets its scale.
        relative_error: how far a pseudo-observation may be off; an observed cell counts with its own, smaller error.
        cells: the (p, w) of the pseudo-observations.
    """

    shape: tuple[float, float, float, float, float] = (0.25, 0.45, 0.28, 0.02, 0.0)
    samples_per_second: float = 100.0
    relative_error: float = 2.0
    cells: tuple[tuple[int, int], ...] = ((1, 1), (4, 1), (1, 4), (4, 4), (16, 1), (1, 16), (16, 16))

    def times(self, features: Array) -> Array:
        """Time per sample relative to (1, 1), shape (n,), for feature rows of shape (n, 5)."""
        return np.asarray(features @ np.array(self.shape), dtype=np.float64)

    def rows(self, features: Callable[[Array, Array], Array]) -> tuple[Array, Array]:
        """The pseudo-observations as least-squares rows, shapes (n, 5) and (n,), weighted by their error."""
        ps, workers = (np.array(axis, dtype=np.float64) for axis in zip(*self.cells, strict=True))
        terms = features(ps, workers)
        rows = terms / self.times(terms)[:, None] / self.relative_error
        return rows, np.full(len(rows), 1 / self.relative_error)
