"""Modes `buffered` and `robust`: updates of several clusters wait for each other, and a Flower strategy makes one step.

Every update is logged and acknowledged when it arrives, so agents see no difference from `async`; a replay of the log
fills the cohort again. The record of an update says whether it closed a cohort.
`robust` is the default where others can reach the learner. It weighs all clusters alike, as whoever claims or pushes
most would own a mean by samples; it takes all but `num_malicious_nodes` of a cohort of three and more; and it waits
neither for absent clusters, so that a fleet of one learns as with `async`, nor for as many slow ones as may be bad.
Source: FedBuff (Nguyen et al. 2022) for the buffer; Blanchard et al. 2017 for Krum. Deviation: one slot a cluster (see
`Cohort`), no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from global_learner.aggregation.base import apply_adam, unexpected
from global_learner.aggregation.flower import (
    aggregate,
    build_strategy,
    restore_strategy_arrays,
    strategy_arrays,
)
from global_learner.aggregation.settings import AggregationMode, AggregationSettings, OptimizerSettings
from global_learner.errors import BadLearnerConfig
from global_learner.storage.snapshot import AdamState, AggregatorState
from global_learner.storage.update_records import AppliedUpdate, UpdateKind
from policy_net.exchange.spec import SCALARS_PER_JOB, PolicySpec, Weights, WeightSpec, split_weights
from policy_net.learning.adam import AdamConstants

_LEAST_SAY = 1e-6
"""Of a vote's usual figure: what is smaller says nothing."""
_SLOT, _STRATEGY, _VOTE = "slot/", "strategy/", "vote/"
_FADED = 1e-3
"""What is left of a silent cluster's votes is forgotten below this."""


@dataclass(slots=True)
class CohortSlot:
    """One cluster's part of a cohort.

    Attributes:
        gradient: the mean of its updates' gradients, weighted by samples.
        learning_rate: the mean of the rates that staleness left them, weighted alike.
        samples: all of its updates', each counted up to the limit.
    """

    gradient: Weights
    learning_rate: float
    samples: int
    updates: int


class Cohort:
    """Updates that wait for each other: one slot a cluster, since robust strategies count votes by cluster.

    A further update of a cluster is merged into its slot, weighted by samples: it is neither lost nor a second vote.
    """

    def __init__(self, samples_limit: int) -> None:
        self._samples_limit = samples_limit
        self._slots: dict[str, CohortSlot] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, cluster: str) -> bool:
        return cluster in self._slots

    @property
    def by_cluster(self) -> dict[str, CohortSlot]:
        """The parts, in the order in which their clusters first arrived."""
        return self._slots

    @property
    def updates(self) -> int:
        """Updates in all slots."""
        return sum(slot.updates for slot in self._slots.values())

    @property
    def learning_rate(self) -> float:
        """The parts' mean rate, weighted by samples."""
        total = sum(slot.samples for slot in self._slots.values())
        return sum(slot.learning_rate * slot.samples for slot in self._slots.values()) / total if total else 0.0

    @property
    def plain_learning_rate(self) -> float:
        """The parts' mean rate, all weighing alike."""
        return sum(slot.learning_rate for slot in self._slots.values()) / len(self._slots) if self._slots else 0.0

    def add(self, applied: AppliedUpdate) -> None:
        """Give an update its slot, or merge it into its cluster's."""
        update = applied.update
        samples = min(update.samples, self._samples_limit)
        slot = self._slots.get(update.cluster)
        if slot is None:
            self._slots[update.cluster] = CohortSlot(update.gradient.copy(), applied.learning_rate, samples, 1)
            return
        slot.samples += samples
        share = samples / slot.samples
        slot.gradient += (update.gradient - slot.gradient) * np.float32(share)
        slot.learning_rate += (applied.learning_rate - slot.learning_rate) * share
        slot.updates += 1

    def clear(self) -> None:
        """Begin anew."""
        self._slots.clear()

    def kept(self) -> AggregatorState:
        """All slots, in order."""
        facts: dict[str, Any] = {
            name: {"learning_rate": slot.learning_rate, "samples": slot.samples, "updates": slot.updates}
            for name, slot in self._slots.items()
        }
        return AggregatorState(facts, {name: slot.gradient.copy() for name, slot in self._slots.items()})

    def restore(self, kept: AggregatorState) -> None:
        """The slots as they were kept."""
        self._slots = {
            name: CohortSlot(
                np.array(kept.arrays[name], dtype=np.float32), fact["learning_rate"], fact["samples"], fact["updates"]
            )
            for name, fact in kept.facts.items()
        }


class VoteMemory:
    """Memory of each cluster's votes: a running mean, kept as sums of votes and of their weights.

    A robust strategy finds a bad cluster where honest votes agree. Single policy gradients agree little, and a cluster
    that flips the sign of its gradient hides in their noise, cohort after cohort; a mean has a fraction of that noise.
    Source: Karimireddy, He & Jaggi 2021, "Learning from History for Byzantine Robust Optimization" (momentum at the
    workers). Deviation: kept by the learner, where no cluster can lie about it; it fades while a cluster is silent.

    Args:
        momentum: the share of the past in a vote, 0 to below 1; at 0 nothing is kept.
    """

    def __init__(self, momentum: float) -> None:
        self._momentum = momentum
        self._sums: dict[str, Weights] = {}
        self._weights: dict[str, float] = {}

    def votes(self, gradients: dict[str, Weights]) -> dict[str, Weights]:
        """Votes of a cohort's clusters, in the order of their gradients (float32), which it adds to its memory."""
        if self._momentum == 0.0:
            return gradients
        keep, share = np.float32(self._momentum), np.float32(1.0 - self._momentum)
        for cluster in list(self._sums):
            self._weights[cluster] *= self._momentum
            if cluster not in gradients and self._weights[cluster] < _FADED:
                del self._sums[cluster], self._weights[cluster]
            else:
                self._sums[cluster] *= keep
        found: dict[str, Weights] = {}
        for cluster, gradient in gradients.items():
            before = self._sums.get(cluster)
            self._sums[cluster] = gradient * share if before is None else before + gradient * share
            self._weights[cluster] = self._weights.get(cluster, 0.0) + 1.0 - self._momentum
            found[cluster] = self._sums[cluster] / np.float32(self._weights[cluster])
        return found

    def kept(self) -> AggregatorState:
        """State for a snapshot."""
        facts: dict[str, Any] = dict(self._weights)
        return AggregatorState(facts, {name: total.copy() for name, total in self._sums.items()})

    def restore(self, kept: AggregatorState) -> None:
        """Go on from it."""
        if self._momentum == 0.0:
            return
        self._weights = dict(kept.facts)
        self._sums = {name: np.array(kept.arrays[name], dtype=np.float32) for name in kept.facts}


def _with_types_of_one(gradient: Weights, votes: Sequence[Weights], spec: PolicySpec) -> Weights:
    """The aggregate, with the vote of the only cluster that has jobs of a type for the weights of that type's inputs.

    They are the columns of the first layer that see the type; without such jobs their gradient is zero. The vote weighs
    as one of all, as in a mean. A cluster that makes a type up changes what is decided of jobs that nobody else has;
    and where two in the cohort have a type the strategy's word stands. Who is not in it has no vote, whatever was said
    in cohorts before: while the second cluster with a type is late, the first has its say alone.
    """
    name, shape = spec.layout()[0]
    width = spec.type_columns + SCALARS_PER_JOB
    gradient = gradient.copy()
    columns_HJT, *of_votes = (
        split_weights(vector, spec)[name].reshape(shape[0], spec.jobs_per_batch, width)[:, :, : spec.type_columns]
        for vector in (gradient, *votes)
    )
    largest_VT = np.array([np.abs(one_HJT).max(axis=(0, 1)) for one_HJT in of_votes])
    # What a cluster once said of a type fades from its votes, and is never quite zero.
    usual_V = np.array([np.abs(vote).mean() for vote in votes])
    says_VT = largest_VT > _LEAST_SAY * usual_V[:, None]
    for job_type in np.flatnonzero(says_VT.sum(axis=0) == 1):
        only = of_votes[int(says_VT[:, job_type].argmax())]
        columns_HJT[:, :, job_type] = only[:, :, job_type] / np.float32(len(votes))
    return gradient


class BufferedAggregator:
    """See `Aggregator`.

    Args:
        descend: takes a cohort's gradient at a learning rate, and counts one step of the state; a step of Adam unless
            given.
    """

    def __init__(
        self,
        settings: AggregationSettings,
        optimizer: OptimizerSettings,
        spec: WeightSpec,
        descend: Callable[[AdamState, Weights, float], None] | None = None,
    ) -> None:
        self._descend = descend or self._apply_adam
        self._settings = settings
        self._optimizer = optimizer
        self._robust = settings.mode is AggregationMode.ROBUST
        # The votes have the memory that Adam's first moment would be.
        self._constants = AdamConstants(0.0 if self._robust else optimizer.beta1, optimizer.beta2, optimizer.epsilon)
        self._units = optimizer.units_for(spec)
        self._spec = spec
        self._strategy: Any = self._new_strategy()
        own = settings.strategy_steps
        if own and self._units is not None:
            raise BadLearnerConfig(
                f"setting optimizer.units: strategy {settings.strategy} takes the steps itself; leave it out"
            )
        self._direction = self._strategy_step if own else self._adam_step
        self._cohort = Cohort(settings.samples_limit)
        self._memory = VoteMemory(settings.vote_momentum)
        self._cohorts = 0

    @property
    def waiting(self) -> int:
        """Updates in the cohort."""
        return self._cohort.updates

    def kind_of_next(self, cluster: str, present: Collection[str] | None = None) -> UpdateKind:
        """Whether it completes the cohort."""
        if self._robust and present is not None and self._is_whole(cluster, present):
            return UpdateKind.CLOSING
        clusters = len(self._cohort) + (cluster not in self._cohort)
        limit = self._settings.close_after_updates
        early = limit is not None and self.waiting + 1 >= limit and clusters >= self._settings.min_clusters
        return UpdateKind.CLOSING if clusters >= self._settings.buffer or early else UpdateKind.ARRIVAL

    def _is_whole(self, cluster: str, present: Collection[str]) -> bool:
        """Whether a cohort with `cluster` lacks no present cluster, or only as many as may be bad.

        It waits no longer for these once more clusters than may be bad have come again, and its votes outvote the bad:
        else a cluster that is slow, or says so, would set the pace of all.
        """
        slots, bad = self._cohort.by_cluster, self._strategy.num_malicious_nodes
        missing = sum(one != cluster and one not in slots for one in present)
        again = sum(slot.updates + (name == cluster) > 1 for name, slot in slots.items())
        votes = len(slots) + (cluster not in slots)
        return missing == 0 or (missing <= bad and again > bad and votes > 2 * bad)

    def apply(self, state: AdamState, applied: AppliedUpdate) -> bool:
        """Let it wait, or close the cohort with it."""
        if applied.kind not in (UpdateKind.ARRIVAL, UpdateKind.CLOSING):
            raise unexpected(applied, "buffered")
        self._cohort.add(applied)
        if applied.kind is UpdateKind.ARRIVAL:
            state.pass_by()
            return False
        return self._close(state)

    def close_early(self, state: AdamState) -> bool:
        """Close what waits, however little; the step that this takes is given back."""
        if not len(self._cohort):
            return False
        step = state.step
        moved = self._close(state)
        state.idle_steps -= state.step - step
        state.step = step
        return moved

    def reset(self, kept: AggregatorState) -> None:
        """Forget the cohort; take up this strategy's memory of then, or begin anew if it was another one."""
        self._cohort.clear()
        self._cohorts = 0
        self._memory = VoteMemory(self._settings.vote_momentum)
        self._strategy = self._new_strategy()
        if kept.facts.get("strategy") == self._settings.strategy:
            self.restore(AggregatorState({**kept.facts, "slots": {}}, kept.arrays))

    def kept(self) -> AggregatorState:
        """The cohort, the number of cohorts, and the strategy's memory."""
        cohort = self._cohort.kept()
        arrays = {_SLOT + name: array for name, array in cohort.arrays.items()}
        arrays |= {_STRATEGY + path: array for path, array in strategy_arrays(self._strategy).items()}
        votes = self._memory.kept()
        arrays |= {_VOTE + name: array for name, array in votes.arrays.items()}
        facts = {
            "strategy": self._settings.strategy,
            "cohorts": self._cohorts,
            "slots": dict(cohort.facts),
            "votes": dict(votes.facts),
        }
        return AggregatorState(facts, arrays)

    def restore(self, kept: AggregatorState) -> None:
        """Go on with them."""
        if not kept.facts:
            return
        self._cohorts = kept.facts["cohorts"]
        self._cohort.restore(AggregatorState(kept.facts["slots"], kept.under(_SLOT)))
        self._memory.restore(AggregatorState(kept.facts.get("votes", {}), kept.under(_VOTE)))
        restore_strategy_arrays(self._strategy, kept.under(_STRATEGY))

    def _new_strategy(self) -> Any:
        return build_strategy(
            self._settings.strategy, self._settings.parameters, fraction_train=0.0, fraction_evaluate=0.0
        )

    def _close(self, state: AdamState) -> bool:
        self._cohorts += 1
        # At rate 0 nothing may move; a strategy with momentum would.
        moved = self._learning_rate > 0.0 and self._direction(state)
        if not moved:
            state.pass_by()
        self._cohort.clear()
        return moved

    @property
    def _learning_rate(self) -> float:
        return self._cohort.plain_learning_rate if self._robust else self._cohort.learning_rate

    def _adam_step(self, state: AdamState) -> bool:
        """Let the strategy aggregate gradients, and our own Adam step down the result."""
        votes = self._votes()
        replies = [(gradient, 1 if self._robust else slot.samples) for gradient, slot in votes]
        if self._robust:
            bad = self._strategy.num_malicious_nodes
            self._strategy.num_nodes_to_select = len(votes) - bad if len(votes) > 2 * bad else len(votes)
        gradient = aggregate(self._strategy, self._cohorts, np.zeros_like(state.weights), replies, self._spec)
        if gradient is None:
            return False
        if self._robust and self._settings.types_of_one and isinstance(self._spec, PolicySpec):
            gradient = _with_types_of_one(gradient, [vote for vote, _ in votes], self._spec)
        self._descend(state, gradient, self._learning_rate)
        return True

    def _apply_adam(self, state: AdamState, gradient: Weights, learning_rate: float) -> None:
        apply_adam(state, gradient, learning_rate, self._constants, self._units)

    def _strategy_step(self, state: AdamState) -> bool:
        """Let the strategy aggregate the models at the ends of one gradient step each, into the next head."""
        replies = [
            (self._model(state.weights, gradient, slot.learning_rate), slot.samples) for gradient, slot in self._votes()
        ]
        weights = aggregate(self._strategy, self._cohorts, state.weights, replies, self._spec)
        if weights is None:
            return False
        state.weights[:] = weights
        state.pass_by()
        return True

    def _votes(self) -> list[tuple[Weights, CohortSlot]]:
        slots = self._cohort.by_cluster
        votes = self._memory.votes({cluster: slot.gradient for cluster, slot in slots.items()})
        return [(votes[cluster], slot) for cluster, slot in slots.items()]

    def _model(self, weights: Weights, gradient: Weights, learning_rate: float) -> Weights:
        """End of one gradient step, shortened as Adam's rate is by staleness and decay."""
        rate = self._settings.client_learning_rate * learning_rate / self._optimizer.learning_rate
        return weights - np.float32(rate) * gradient
