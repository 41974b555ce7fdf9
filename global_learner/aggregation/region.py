"""Aggregation in a region: its clusters' updates are guarded and gathered here, and the learner above takes the steps.

A region that moved its head by itself would push the difference of two heads, which is no gradient. So its head is the
latest known one above; each exchange with the learner above is a record of the log, and a replay comes to the same
bits. The log is the outbox too: `PASSED_UP` is on disk before a push is sent, and the push is sent, under one name,
until a `HEAD_ABOVE` settles it.

In mode `async` every update is gathered as it comes; in `buffered` and `robust` a cohort's aggregate is, so that the
region's own strategy outvotes a bad cluster before anything goes up.

What is gathered since the last push goes up as one weighted mean. A gradient weighs by its samples, shortened by the
staleness that it had in the region. The push counts as computed at the head at which its middle sample was computed, so
that no single cluster that is late, or says so, makes the whole region late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from global_learner.aggregation.base import unexpected
from global_learner.aggregation.buffered import BufferedAggregator
from global_learner.aggregation.settings import AggregationMode, AggregationSettings, OptimizerSettings
from global_learner.errors import BadLearnerConfig
from global_learner.storage.snapshot import AdamState, AggregatorState
from global_learner.storage.update_records import AppliedUpdate, UpdateKind
from policy_net.exchange.spec import Weights, WeightSpec

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


_REMEMBERED_BASES = 1024
"""Heads above whose steps are known; an older gradient counts as of the oldest of them."""
_COHORT, _GATHERED, _PARCEL = "cohort/", "gathered/", "parcel/"


class RegionAggregator:
    """See `Aggregator`.

    Attributes:
        incarnation: of this region at the learner above, under which the latest head or push was logged; 0: none.
        sequence: of the latest push under it.
        pending: the push that is on its way; None: there is none.

    Raises:
        BadConfig: a mode or strategy that would take steps here.
    """

    def __init__(self, settings: AggregationSettings, optimizer: OptimizerSettings, spec: WeightSpec) -> None:
        self.incarnation = 0
        self.sequence = 0
        self.pending: Parcel | None = None
        if settings.strategy_steps:
            raise BadLearnerConfig(
                "setting aggregation: a region passes gradients to the learner above, which takes the steps: take mode "
                "async, robust, or buffered with a strategy that leaves the step to adam"
            )
        self._samples_limit = settings.samples_limit
        self._gathered = Gathered(spec.parameter_count)
        self._bases: list[tuple[int, int]] = []  # of this head and of the one above, oldest first
        self._cohort: BufferedAggregator | None = None
        if settings.mode is not AggregationMode.ASYNC:
            self._cohort = BufferedAggregator(settings, optimizer, spec, descend=self._gather_cohort)
        self._waiting = Contributions()

    @property
    def waiting(self) -> int:
        """Updates that no push to the learner above stands for yet."""
        return self._gathered.updates + self._waiting.updates

    @property
    def gathered(self) -> int:
        """Updates that the next push would stand for."""
        return self._gathered.updates

    @property
    def base_step(self) -> int | None:
        """Step above of the head that this one is; None before the first."""
        return self._bases[-1][1] if self._bases else None

    def kind_of_next(self, cluster: str, present: Collection[str] | None = None) -> UpdateKind:
        """It waits, or closes a cohort."""
        return UpdateKind.ARRIVAL if self._cohort is None else self._cohort.kind_of_next(cluster, present)

    def apply(self, state: AdamState, applied: AppliedUpdate) -> bool:
        """Gather an update, or record an exchange with the learner above, which alone moves the weights."""
        if applied.kind is UpdateKind.PASSED_UP:
            self._pass_up(applied)
            state.pass_by()
        elif applied.kind is UpdateKind.HEAD_ABOVE:
            self._take_head(state, applied)
        elif applied.kind is UpdateKind.ARRIVAL and self._cohort is None:
            self._gather(applied.update.gradient, applied.learning_rate, self._behind(applied))
            state.pass_by()
        elif applied.kind in (UpdateKind.ARRIVAL, UpdateKind.CLOSING) and self._cohort is not None:
            self._waiting.add(self._behind(applied))
            self._cohort.apply(state, applied)
            if applied.kind is UpdateKind.CLOSING:
                self._waiting = Contributions()
        else:
            raise unexpected(applied, "of a region")
        return False

    def close_early(self, state: AdamState) -> bool:
        """Give up what waits: a learner that is no longer a region has nobody to push it to."""
        del state
        self._forget()
        return False

    def reset(self, kept: AggregatorState) -> None:
        """Give up what waits, which is of a head that is given up."""
        del kept
        self._forget()

    def kept(self) -> AggregatorState:
        """State for a snapshot."""
        parts = {_GATHERED: self._gathered.kept()}
        if self._cohort is not None:
            parts[_COHORT] = self._cohort.kept()
        if self.pending is not None:
            parts[_PARCEL] = self.pending.kept()
        facts: dict[str, Any] = {name: dict(part.facts) for name, part in parts.items()}
        facts |= {
            "region": True,
            "incarnation": self.incarnation,
            "sequence": self.sequence,
            "bases": self._bases,
            "waiting": self._waiting.to_json(),
        }
        return AggregatorState(
            facts, {name + key: array for name, part in parts.items() for key, array in part.arrays.items()}
        )

    def restore(self, kept: AggregatorState) -> None:
        """Go on with it; the state of a learner that was no region is left out."""
        facts = kept.facts
        if not facts.get("region"):
            return
        self.incarnation, self.sequence = facts["incarnation"], facts["sequence"]
        self._bases = [(step, above) for step, above in facts["bases"]]
        self._waiting = Contributions.from_json(facts["waiting"])
        self._gathered.restore(AggregatorState(facts[_GATHERED], kept.under(_GATHERED)))
        if self._cohort is not None and _COHORT in facts:
            self._cohort.restore(AggregatorState(facts[_COHORT], kept.under(_COHORT)))
        self.pending = (
            Parcel.restored(AggregatorState(facts[_PARCEL], kept.under(_PARCEL))) if _PARCEL in facts else None
        )

    def _pass_up(self, applied: AppliedUpdate) -> None:
        update = applied.update
        self.incarnation, self.sequence = update.incarnation, update.sequence
        self.pending = self._gathered.take(update.incarnation, update.sequence)

    def _take_head(self, state: AdamState, applied: AppliedUpdate) -> None:
        update = applied.update
        if update.incarnation != self.incarnation:
            self.incarnation, self.sequence = update.incarnation, 0
        if update.samples:
            self._forget()
        self.pending = None
        state.pass_by()
        state.weights[:] = update.gradient
        self._bases = [*self._bases[1 - _REMEMBERED_BASES :], (applied.step, update.base_step)]

    def _forget(self) -> None:
        """Give up all that was computed at heads before."""
        self._gathered.clear()
        self._waiting = Contributions()
        self._bases = []
        self.pending = None
        if self._cohort is not None:
            self._cohort.reset(AggregatorState())

    def _behind(self, applied: AppliedUpdate) -> Contributions:
        update = applied.update
        samples = min(update.samples, self._samples_limit)
        above = self._above(update.base_step)
        return Contributions(samples, min(update.effective_samples, float(samples)), 1, Counter({above: samples}))

    def _above(self, step: int) -> int:
        """The step above of the head that stood here at a step."""
        known = [above for begun, above in self._bases if begun <= step]
        return known[-1] if known else (self._bases[0][1] if self._bases else 0)

    def _gather(self, gradient: Weights, learning_rate: float, behind: Contributions) -> None:
        """Staleness in the region has shortened the rate, which weighs here."""
        self._gathered.add(gradient, behind.samples * learning_rate, behind)

    def _gather_cohort(self, state: AdamState, gradient: Weights, learning_rate: float) -> None:
        self._gather(gradient, learning_rate, self._waiting)
        state.pass_by()
