"""Attacks: what a bad cluster sends in place of its gradient; both pass every check that looks at one update alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import numpy as np

from policy_net.exchange.spec import Weights

Attack = Callable[[Weights], Weights]


def _times(factor: float, gradient: Weights) -> Weights:
    return gradient * np.float32(factor)


_FACTORS = {"none": 1.0, "flipped": -1.0, "hundredfold": 100.0, "hundredfold-flipped": -100.0}
ATTACKS: Mapping[str, Attack] = MappingProxyType({name: partial(_times, factor) for name, factor in _FACTORS.items()})
"""By name; `none` is the clean run that the others are compared with."""
