"""Sum of what a region's clusters taught since its last push: one weighted mean, which goes up as one update.

A gradient weighs by its samples, shortened by the staleness that it had in the region. The push counts as computed at
the head that the middle one of its samples was computed at: neither one cluster that is late, nor one that says so,
makes a whole region late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from global_learner.storage.snapshot import AggregatorState
from policy_net.exchange.spec import Weights

_SUM, _PENDING = "sum", "pending"


@dataclass(frozen=True, slots=True)
class GatheredGradient:
    """One gradient, of a cluster or of a cohort of them.

    Attributes:
        gradient: float32, shape (parameter_count,).
        weight: what it weighs among the others, 0 and more.
        samples: micro-actions behind it.
        updates: of clusters, that it stands for.
        bases: samples by the step of the head above that they were computed at.
    """

    gradient: Weights
    weight: float
    samples: int
    effective_samples: float
    updates: int
    bases: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Parcel:
    """One push to the learner above; (incarnation, sequence) names it there for ever.

    Attributes:
        base_step: of the head above.
        gradient: float32, shape (parameter_count,).
        samples: as of all its parts, as are `effective_samples` and `updates`.
    """

    incarnation: int
    sequence: int
    base_step: int
    gradient: Weights
    samples: int
    effective_samples: float
    updates: int

    def kept(self) -> AggregatorState:
        """For a snapshot."""
        facts = {
            "incarnation": self.incarnation,
            "sequence": self.sequence,
            "base_step": self.base_step,
            "samples": self.samples,
            "effective_samples": self.effective_samples,
            "updates": self.updates,
        }
        return AggregatorState(facts, {_PENDING: self.gradient.copy()})

    @classmethod
    def restored(cls, kept: AggregatorState) -> Parcel:
        """The inverse of `kept`."""
        return cls(gradient=kept.arrays[_PENDING].astype(np.float32), **kept.facts)


class Gathered:
    """A running sum; the same parts in the same order give the same bits."""

    def __init__(self, parameter_count: int) -> None:
        self._sum: NDArray[np.float64] = np.zeros(parameter_count)
        self._weight = 0.0
        self._samples = 0
        self._effective = 0.0
        self._updates = 0
        self._bases: Counter[int] = Counter()

    @property
    def updates(self) -> int:
        """Updates of clusters that are in it."""
        return self._updates

    @property
    def samples(self) -> int:
        """Micro-actions behind them."""
        return self._samples

    def add(self, part: GatheredGradient) -> None:
        """Add a gradient; one that weighs nothing is left out."""
        if part.weight <= 0.0:
            return
        self._sum += part.gradient * np.float64(part.weight)
        self._weight += part.weight
        self._samples += part.samples
        self._effective += part.effective_samples
        self._updates += part.updates
        self._bases.update(part.bases)

    def clear(self) -> None:
        """Forget all of it."""
        self._sum[:] = 0.0
        self._weight = self._effective = 0.0
        self._samples = self._updates = 0
        self._bases.clear()

    def take(self, incarnation: int, sequence: int) -> Parcel:
        """All of it as a push, and begin anew.

        Raises:
            ValueError: there is nothing.
        """
        if not self._updates:
            raise ValueError("nothing was gathered")
        parcel = Parcel(
            incarnation,
            sequence,
            self._middle_base(),
            (self._sum / self._weight).astype(np.float32),
            self._samples,
            self._effective,
            self._updates,
        )
        self.clear()
        return parcel

    def kept(self) -> AggregatorState:
        """For a snapshot."""
        facts = {
            "weight": self._weight,
            "samples": self._samples,
            "effective_samples": self._effective,
            "updates": self._updates,
            "bases": sorted(self._bases.items()),
        }
        return AggregatorState(facts, {_SUM: self._sum.copy()})

    def restore(self, kept: AggregatorState) -> None:
        """Go on from `kept`."""
        facts: Mapping[str, Any] = kept.facts
        self._sum = kept.arrays[_SUM].astype(np.float64)
        self._weight, self._samples = facts["weight"], facts["samples"]
        self._effective, self._updates = facts["effective_samples"], facts["updates"]
        self._bases = Counter({int(base): count for base, count in facts["bases"]})

    def _middle_base(self) -> int:
        """The lower weighted median of the bases."""
        left = -(-self._bases.total() // 2)
        for base in sorted(self._bases):
            left -= self._bases[base]
            if left <= 0:
                return base
        raise ValueError("no base is known")
