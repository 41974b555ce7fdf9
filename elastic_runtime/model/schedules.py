"""How a learning rate changes with the step: plain data, as it travels to the parameter servers.

A schedule is asked for the rate of step `t`, where `t` counts the steps applied before it (the first step is 0).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

from elastic_runtime.errors import BadInput
from elastic_runtime.plain_fields import require_finite, require_whole


@dataclass(frozen=True)
class PiecewiseRate:
    """Constant between given steps: `PiecewiseRate({0: 0.1, 30_000: 0.01})`.

    Attributes:
        rates: from which step on (≥ 0) which rate (≥ 0) holds; before the first the optimizer's own `lr` does. A
            mapping is taken too; kept sorted by step.
        warm_up_steps: over so many first steps the rate rises linearly to what it would be otherwise.

    Raises:
        BadInput: no rate, a negative or repeated step, or a rate that is negative or not finite.
    """

    rates: tuple[tuple[int, float], ...] | Mapping[int, float]
    warm_up_steps: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.rates, Mapping | tuple | list):
            raise BadInput(f"lr_at: rates is {self.rates!r}; give a mapping {{step: rate}}")
        pairs = tuple(self.rates.items()) if isinstance(self.rates, Mapping) else tuple(self.rates)
        if not pairs:
            raise BadInput("lr_at: a piecewise schedule names no step; give at least one, such as {0: 0.1}")
        cleaned = []
        for pair in pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise BadInput(f"lr_at: {pair!r} is not a pair of a step and a rate")
            cleaned.append((require_whole("lr_at: step", pair[0], 0), require_finite("lr_at: rate", pair[1], 0.0)))
        cleaned.sort()
        for before, after in pairwise(cleaned):
            if before[0] == after[0]:
                raise BadInput(f"lr_at: step {after[0]} has two rates; leave one")
        object.__setattr__(self, "rates", tuple(cleaned))
        require_whole("lr_at: warm_up_steps", self.warm_up_steps, 0)

    def rate(self, step: int, lr: float) -> float:
        """The rate of this step, where `lr` is the optimizer's own."""
        rates = cast(tuple[tuple[int, float], ...], self.rates)
        place = bisect_right(rates, (step, math.inf))
        return _warmed(rates[place - 1][1] if place else lr, step, self.warm_up_steps)


@dataclass(frozen=True)
class CosineRate:
    """Half a cosine from the optimizer's `lr` to `final_lr`, after a linear warm-up; `final_lr` from then on.

    Source: Loshchilov & Hutter 2017 (SGDR), one cycle. With `final_lr` equal to `lr` it is a warm-up and no more.

    Attributes:
        total_steps: when `final_lr` is reached, warm-up included.
        warm_up_steps: over so many first steps the rate rises linearly to `lr`.
        final_lr: where it ends.

    Raises:
        BadInput: `total_steps` not above `warm_up_steps`, or a value that is negative or not finite.
    """

    total_steps: int
    warm_up_steps: int = 0
    final_lr: float = 0.0

    def __post_init__(self) -> None:
        require_whole("lr_at: total_steps", self.total_steps, 1)
        require_whole("lr_at: warm_up_steps", self.warm_up_steps, 0)
        object.__setattr__(self, "final_lr", require_finite("lr_at: final_lr", self.final_lr, 0.0))
        if self.warm_up_steps >= self.total_steps:
            raise BadInput(
                f"lr_at: warm_up_steps {self.warm_up_steps} leaves nothing of total_steps {self.total_steps}; lower it"
            )

    def rate(self, step: int, lr: float) -> float:
        """The rate of this step, where `lr` is the optimizer's own."""
        if step < self.warm_up_steps:
            return _warmed(lr, step, self.warm_up_steps)
        if step >= self.total_steps:
            return self.final_lr
        done = (step - self.warm_up_steps) / (self.total_steps - self.warm_up_steps)
        return self.final_lr + (lr - self.final_lr) * (1.0 + math.cos(math.pi * done)) / 2.0


Schedule = PiecewiseRate | CosineRate


def _warmed(rate: float, step: int, warm_up_steps: int) -> float:
    return rate * (step + 1) / warm_up_steps if step < warm_up_steps else rate
