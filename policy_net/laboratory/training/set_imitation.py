"""Fit a `set` policy's residual to logged decisions: maximum likelihood of the planner's way to what was given.

At every pick (`grant_order.py`) each right step should come before all wrong ones; nothing is asked of the order of the
right ones among themselves, which the log does not tell. So the likelihood of a right step is that of a softmax over it
and the wrong ones, of the planner's tilted scores; this composite likelihood is climbed. The softmax's temperature is
fitted along with the residual, and then forgotten: a planner takes the best.
What no tilt can change stays: the planner's steps lead over the believed best splits, it never stops while a step gains
and fits, and it cannot give what it believes to be of no use.
Source: the partial likelihood of rankings of Plackett (1975). Deviation: sets of right and wrong steps, no full order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from policy_net.exchange.set_spec import SetSpec
from policy_net.exchange.spec import Weights
from policy_net.learning.grant_order import Picks
from policy_net.set_policy.residual import Residual

Array = NDArray[np.float64]

RIDGE = 1e-3
"""Weight of the squared parameters against the mean log-likelihood: what the log does not show stays small."""
LARGEST_LOG_SHARPNESS = 3.0
"""Bounds the fitted temperature to between a twentieth and twenty nats."""


def fit_residual(
    spec: SetSpec,
    start: Weights,
    picks: Picks,
    *,
    most_iterations: int,
    ridge: float = RIDGE,
    on_iteration: Callable[[float], None] | None = None,
) -> tuple[Weights, float]:
    """Climb the mean log-likelihood of the picks by L-BFGS.

    Args:
        on_iteration: is told the mean log-likelihood per pick, in nats.

    Returns:
        The weights, and the mean log-likelihood that they reach.
    """
    if not picks.count:
        return start, 0.0
    from scipy.optimize import minimize  # noqa: PLC0415  (slow to load, and few programs fit)

    likelihood = _Likelihood(spec, picks, ridge)
    first = np.append(start.astype(np.float64), 0.0)
    found = minimize(
        likelihood.loss,
        first,
        jac=True,
        method="L-BFGS-B",
        bounds=[(None, None)] * len(start) + [(-LARGEST_LOG_SHARPNESS, LARGEST_LOG_SHARPNESS)],
        options={"maxiter": most_iterations},
        callback=None if on_iteration is None else lambda _: on_iteration(likelihood.latest),
    )
    weights: Weights = found.x[:-1].astype(np.float32)
    likelihood.loss(np.append(weights.astype(np.float64), found.x[-1]))
    return weights, likelihood.latest


class _Likelihood:
    """Mean log-likelihood per pick, and its gradient in the residual's parameters and the temperature's logarithm."""

    def __init__(self, spec: SetSpec, picks: Picks, ridge: float) -> None:
        self._spec = spec
        self._picks = picks
        self._ridge = ridge
        self._starts = np.flatnonzero(np.diff(picks.pick_C, prepend=-1))
        self._rights_P = np.add.reduceat(picks.right_C.astype(np.float64), self._starts)
        self._rows = len(picks.inputs_RF)
        self.latest = 0.0

    def loss(self, point: Array) -> tuple[float, Array]:
        picks = self._picks
        parameters, sharpness = point[:-1], float(np.exp(point[-1]))
        residual = Residual(self._spec, parameters.astype(np.float32))
        tilt_RO = residual.outputs(picks.inputs_RF)
        tilted_C = picks.log_score_C + tilt_RO[picks.row_C, 0] + tilt_RO[picks.row_C, 1] * picks.log_share_C
        logit_C = sharpness * tilted_C
        logit_C -= np.maximum.reduceat(logit_C, self._starts)[picks.pick_C]
        weight_C = np.exp(logit_C)
        wrong_P = np.add.reduceat(np.where(picks.right_C, 0.0, weight_C), self._starts)
        # Of every right step, how probable it is to come before all wrong ones; all right steps of a pick weigh one.
        share_C = picks.right_C / self._rights_P[picks.pick_C] / picks.count
        both_C = weight_C + wrong_P[picks.pick_C]
        self.latest = float(share_C @ (logit_C - np.log(both_C)))
        behind_P = np.add.reduceat(share_C / both_C, self._starts)
        slope_C = np.where(picks.right_C, share_C * wrong_P[picks.pick_C] / both_C, -weight_C * behind_P[picks.pick_C])
        into_C = sharpness * slope_C
        slope_RO: Array = np.stack(
            (
                np.bincount(picks.row_C, into_C, self._rows),
                np.bincount(picks.row_C, into_C * picks.log_share_C, self._rows),
            ),
            axis=1,
        ).astype(np.float64)
        gradient = residual.gradient(picks.inputs_RF, slope_RO) - 2 * self._ridge * parameters
        total = self.latest - self._ridge * float(parameters @ parameters)
        return -total, -np.append(gradient, sharpness * float(slope_C @ tilted_C))
