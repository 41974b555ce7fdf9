"""Aggregation in a region: its clusters' updates are guarded and gathered here, and the learner above takes the steps.

A region that moved its head by itself would push the difference of two heads, which is no gradient. So its head is the
latest known one above; each exchange with the learner above is a record of the log, and a replay comes to the same
bits. The log is the outbox too: `PASSED_UP` is on disk before a push is sent, and the push is sent, under one name,
until a `HEAD_ABOVE` settles it.

In mode `async` every update is gathered as it comes; in `buffered` and `robust` a cohort's aggregate is, so that the
region's own strategy outvotes a bad cluster before anything goes up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from global_learner.aggregation.base import unexpected
from global_learner.aggregation.buffered import BufferedAggregator
from global_learner.aggregation.gathered import Contributions, Gathered, Parcel
from global_learner.aggregation.settings import AggregationMode, AggregationSettings, OptimizerSettings
from global_learner.errors import BadLearnerConfig
from global_learner.storage.snapshot import AdamState, AggregatorState
from global_learner.storage.update_records import AppliedUpdate, UpdateKind
from policy_net.exchange.spec import Weights, WeightSpec

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
