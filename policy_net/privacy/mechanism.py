"""The Gaussian mechanism on one gradient: shorten it to a bound, add noise that is as large as the bound asks.

Source: Dwork & Roth 2014, §A (Gaussian mechanism); Abadi et al. 2016 (clip, then noise). Deviation: a cluster's whole
update is clipped, not each sample's gradient: what is hidden is the cluster.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from policy_net.exchange.spec import Weights

_INSIDE = 1.0 - 2.0**-40
"""Keeps the shortened gradient inside the bound whatever its last digits round to."""
_SEED_BITS = 128


def fresh_seed() -> int:
    """A seed that nobody else can know, from the system's entropy; kept nowhere."""
    return secrets.randbits(_SEED_BITS)


def shortened(gradient: Weights, clip_norm: float) -> NDArray[np.float64]:
    """The gradient with a Euclidean norm of at most `clip_norm`, its direction kept; float64, the same shape."""
    exact = gradient.astype(np.float64)
    norm = math.sqrt(float(np.dot(exact, exact)))
    return exact * (clip_norm / norm * _INSIDE) if norm > clip_norm * _INSIDE else exact


class GaussianNoise:
    """Clips gradients and adds noise, drawn anew for each.

    Args:
        noise_multiplier: standard deviation of the noise in each parameter over `clip_norm`.
        seed: tells the seed of the next gradient's noise; whoever knows it can take the noise off again.
    """

    def __init__(self, clip_norm: float, noise_multiplier: float, seed: Callable[[], int] = fresh_seed) -> None:
        self._clip_norm = clip_norm
        self._deviation = clip_norm * noise_multiplier
        self._seed = seed

    def on(self, gradient: Weights) -> Weights:
        """A finite gradient, clipped and noised; float32, the same shape.

        Summed as float64 and rounded afterwards, which hides most of what the last digits of a sum would tell
        (Mironov 2012, "On Significance of the Least Significant Bits for Differential Privacy").
        """
        noise = np.random.default_rng(self._seed()).normal(0.0, self._deviation, gradient.shape)
        return (shortened(gradient, self._clip_norm) + noise).astype(np.float32)
