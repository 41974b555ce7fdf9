"""Parameters of the twin's policy in one flat vector: what may be learned stands side by side, named once.

The compiled code reads the same order (`core/twin.h`). New parameters are added before the residual's, whose number
depends on its layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from policy_net.exchange.spec import SET_INPUTS, SetSpec
from policy_net.set_policy.prices import PriceTerms
from policy_net.set_policy.residual import LOUDNESS_ON_ONE_MACHINE, Residual
from policy_net.set_policy.sessions import SessionTerms

Array = NDArray[np.float64]


class Parameter(IntEnum):
    """Positions of the parameters that every policy has; the residual's weights and biases follow, layer by layer."""

    BOUND = 0
    LOUDNESS_ON_ONE_MACHINE = 1
    SPEED_EXPONENT = 2
    SPEED_EXPONENT_BY_CONTENTION = 3
    WORK_EXPONENT = 4
    WORK_EXPONENT_BY_CONTENTION = 5
    PS_PRICE = 6
    PS_PRICE_BY_CONTENTION = 7
    SCATTER = 8
    STRANGERS = 9
    UNRELATED = 10


def parameters_of(spec: SetSpec, residual: Residual, prices: PriceTerms, sessions: SessionTerms | None) -> Array:
    """The vector of a policy as it acts, shape (len(Parameter) + weights,)."""
    named = np.zeros(len(Parameter))
    named[Parameter.BOUND] = spec.bound
    named[Parameter.LOUDNESS_ON_ONE_MACHINE] = LOUDNESS_ON_ONE_MACHINE
    named[Parameter.SPEED_EXPONENT : Parameter.SCATTER] = prices.flat
    named[Parameter.SCATTER :] = (sessions or SessionTerms()).flat
    return np.concatenate((named, residual.flat))


def widths_of(spec: SetSpec, outputs: int) -> Sequence[int]:
    """How wide the residual's layers are, from its inputs to its outputs."""
    return (SET_INPUTS, *spec.hidden, outputs)
