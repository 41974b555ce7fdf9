"""Updates that wait for each other: one slot a cluster, since robust strategies count votes by cluster.

A further update of a cluster that already has a slot is merged into it, weighted by samples: it is neither lost nor a
second vote, so a cluster that pushes ten times as often as the others weighs no more than they do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from global_learner.storage.snapshot import AggregatorState
from global_learner.storage.update_records import AppliedUpdate
from policy_net.exchange.spec import Weights


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
    """Slots in the order in which the clusters first arrived."""

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
