"""Attacks: what a bad cluster sends in place of its gradient; both pass every check that looks at one update alone."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

import numpy as np

from policy_net.exchange.spec import Weights

Attack = Callable[[Weights], Weights]


def _honest(gradient: Weights) -> Weights:
    return gradient


def _flipped(gradient: Weights) -> Weights:
    return -gradient


def _hundredfold(gradient: Weights) -> Weights:
    return gradient * np.float32(100.0)


def _hundredfold_flipped(gradient: Weights) -> Weights:
    return gradient * np.float32(-100.0)


ATTACKS = MappingProxyType(
    {"none": _honest, "flipped": _flipped, "hundredfold": _hundredfold, "hundredfold-flipped": _hundredfold_flipped}
)
"""By name; `none` is the clean run that the others are compared with."""
