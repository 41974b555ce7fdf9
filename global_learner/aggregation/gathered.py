"""Sum of the gradients of a region's clusters since its last push: one weighted mean, which goes up as one update.

A gradient weighs by its samples, shortened by the staleness that it had in the region. The push counts as computed at
the head at which its middle sample was computed, so that no single cluster that is late, or says so, makes the whole
region late.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from global_learner.storage.snapshot import AggregatorState
from policy_net.exchange.spec import Weights

_SUM, _PENDING = "sum", "pending"
_KEPT = ("samples", "effective_samples", "updates", "bases")
"""Names in snapshots, in the order of `Contributions.to_json`."""


@dataclass(slots=True)
class Contributions:
    """Updates of clusters behind one gradient, or several.

    Attributes:
        samples: micro-actions behind them.
        bases: samples by the step of the head above at which they were computed.
    """

    samples: int = 0
    effective_samples: float = 0.0
    updates: int = 0
    bases: Counter[int] = field(default_factory=Counter)

    def add(self, other: Contributions) -> None:
        """Add those of another gradient."""
        self.samples += other.samples
        self.effective_samples += other.effective_samples
        self.updates += other.updates
        self.bases.update(other.bases)

    @property
    def middle_base(self) -> int:
        """The lower weighted median of the bases; raises ValueError without any."""
        left = -(-self.bases.total() // 2)
        for base in sorted(self.bases):
            left -= self.bases[base]
            if left <= 0:
                return base
        raise ValueError("no base is known")

    def to_json(self) -> list[Any]:
        """JSON for a snapshot."""
        return [self.samples, self.effective_samples, self.updates, sorted(self.bases.items())]

    @classmethod
    def from_json(cls, content: list[Any]) -> Contributions:
        """The inverse of `to_json`."""
        samples, effective_samples, updates, bases = content
        return cls(samples, effective_samples, updates, Counter({int(base): count for base, count in bases}))


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
        """State for a snapshot."""
        facts = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "gradient"}
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
        self._behind = Contributions()

    @property
    def updates(self) -> int:
        """Updates of clusters that are in it."""
        return self._behind.updates

    @property
    def samples(self) -> int:
        """Micro-actions behind them."""
        return self._behind.samples

    def add(self, gradient: Weights, weight: float, behind: Contributions) -> None:
        """Add a gradient; one that weighs nothing is left out.

        Args:
            gradient: float32, shape (parameter_count,).
            weight: among the others, 0 and more.
        """
        if weight <= 0.0:
            return
        self._sum += gradient * np.float64(weight)
        self._weight += weight
        self._behind.add(behind)

    def clear(self) -> None:
        """Forget all of it."""
        self._sum[:] = 0.0
        self._weight, self._behind = 0.0, Contributions()

    def take(self, incarnation: int, sequence: int) -> Parcel:
        """All of it as a push, and begin anew.

        Raises:
            ValueError: there is nothing.
        """
        behind = self._behind
        if not behind.updates:
            raise ValueError("nothing was gathered")
        mean = (self._sum / self._weight).astype(np.float32)
        parcel = Parcel(
            incarnation,
            sequence,
            behind.middle_base,
            mean,
            behind.samples,
            behind.effective_samples,
            behind.updates,
        )
        self.clear()
        return parcel

    def kept(self) -> AggregatorState:
        """State for a snapshot."""
        facts = {"weight": self._weight, **dict(zip(_KEPT, self._behind.to_json(), strict=True))}
        return AggregatorState(facts, {_SUM: self._sum.copy()})

    def restore(self, kept: AggregatorState) -> None:
        """Go on from `kept`."""
        facts = kept.facts
        self._sum = kept.arrays[_SUM].astype(np.float64)
        self._weight = facts["weight"]
        self._behind = Contributions.from_json([facts[name] for name in _KEPT])
