"""Off-policy correction: experience was gathered under the policy that acted, and its gradient is taken at the head.

What was done counts by the ratio of its probability at the head to that with which it was done, clipped at 1, so that
it never counts more than once. Ratios far below 1 leave few *effective samples*; learning waits for more.
Source: importance weights, truncated as in V-trace (Espeholt et al., IMPALA, 2018).
Deviation: no products over the choices of a decision time, which are noise for some forty of them, see
docs/experiments.md; a policy takes each choice for itself, or all of a decision time by their geometric mean.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def clipped_ratios(log_policy_B: Floats, behaviour_B: NDArray[np.floating]) -> Floats:
    """The ratio of each choice, clipped at 1; shape (B,).

    Args:
        log_policy_B: log π of what was chosen, at the head.
    """
    ratios_B: Floats = np.minimum(1.0, np.exp(log_policy_B - np.log(behaviour_B)))
    return ratios_B


def mean_ratio(log_policy_M: Floats, behaviour_M: NDArray[np.floating], chosen_M: NDArray[np.bool_]) -> float:
    """The geometric mean of the ratios of one decision time's choices, not clipped; 1 where nothing was chosen.

    Args:
        log_policy_M: log π of every micro-action, at the head.
    """
    if not chosen_M.any():
        return 1.0
    return float(np.exp(np.mean((log_policy_M - np.log(behaviour_M))[chosen_M])))


def effective_samples(ratios_B: Floats, choices_B: NDArray[np.number] | None = None) -> float:
    """How many samples with weight 1 the weighted ones are worth (Kish's effective sample size).

    Args:
        choices_B: how many choices have this weight; None: one each.

    Returns:
        At most the number of choices; NaN where all weights underflow and nothing was counted, 0 where it was.
    """
    if choices_B is None:
        with np.errstate(invalid="ignore"):
            return float(ratios_B.sum() ** 2 / np.square(ratios_B).sum())
    squares = float((choices_B * ratios_B**2).sum())
    return float((choices_B * ratios_B).sum()) ** 2 / squares if squares > 0.0 else 0.0
