"""Spreads of a `set` policy's parameters: how far each has to move to be noticed, the units of search and learning.

A tenth more of a residual's weight is not a tenth more of a session's scatter: the first may turn every decision of a
day, the other hardly one.
Source: our own; the figures are of the order at which a replay's mean JCT begins to change by more than its noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType

import numpy as np

from policy_net.exchange.spec import PRICE_COUNT, PRICES, SESSION_COUNT, SESSIONS, SetSpec, Weights

RESIDUAL_SPREAD = 0.15
"""Of each weight and bias; a residual that ships measures 0.3 on average."""
EXPONENT_SPREAD = 0.3
"""Of the log of an exponent's factor, and of what contention adds to it."""
PS_PRICE_SPREAD = (0.4, 0.3)
"""Of the log of a server's price, and of what contention adds to it."""
SESSION_SPREAD = 0.5
"""Of the logs of scatter, strangers and sessions without anything in common."""
OF_GROUPS: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {PRICES: (EXPONENT_SPREAD,) * (PRICE_COUNT - 2) + PS_PRICE_SPREAD, SESSIONS: (SESSION_SPREAD,) * SESSION_COUNT}
)
"""In the order in which the numbers of a group stand."""


def spreads_of(spec: SetSpec) -> Weights:
    """One positive number per parameter, in the units of the weights, shape (parameter_count,).

    A step of a head that counts in spreads is so many of them (`optimizer.units` of the learner).
    """
    pieces = []
    for name, shape in spec.layout():
        # All other tensors are the residual's.
        found = OF_GROUPS.get(name, (RESIDUAL_SPREAD,) * prod(shape))
        pieces.append(np.array(found, dtype=np.float32))
    return np.concatenate(pieces)
