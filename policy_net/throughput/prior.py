"""What is believed of a job type's speed before it was ever observed.

The prior has the same form as the fit (`form.py`): a few pseudo-observations, spread over small and large
allocations, of one shape: more tasks help, with diminishing returns. It is deliberately on the optimistic side of what
was measured, so that a scheduler tries more than one task of a role and learns from it; a pessimistic prior would
confirm itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FitPrior:
    """Pseudo-observations for a type that nobody has seen.

    Attributes:
        shape: the coefficients of the form's terms, for time per sample relative to the smallest allocation, at which
            every term is 1; they add up to 1.
        cells: the (p, w) of the pseudo-observations.
        samples_per_second: speed at the smallest allocation of a type without any observation. Source: the geometric
            mean of DL2's eight models, 103; it only ranks an unseen type among others until its first observation sets
            its scale.
        relative_error: how far a pseudo-observation may be off; an observed cell counts with its own, smaller error.
    """

    shape: tuple[float, ...]
    cells: tuple[tuple[int, int], ...]
    samples_per_second: float = 100.0
    relative_error: float = 2.0

    def times(self, features: Array) -> Array:
        """Time per sample relative to the smallest allocation, shape (n,), for feature rows of shape (n, terms)."""
        return np.asarray(features @ np.array(self.shape), dtype=np.float64)
