"""Head of the learner: the newest weights and the record of how they came about.

Live updates and replayed ones go through the same `apply`, so that a recovered head is the lost one, bit for bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from global_learner.aggregation.base import Aggregator, move_average
from global_learner.storage.snapshot import AdamState, Snapshot, parse_snapshot
from global_learner.storage.update_records import AppliedUpdate, UpdateKind
from global_learner.updates.ledger import Ledger
from policy_net.exchange.spec import Weights, weights_to_bytes
from policy_net.learning.adam import TrustRegion

_WAITING_KNOWN = 1024
"""Latest updates that only waited for their cohort; older ones count as if each had moved the head."""


class Head:
    """Weights, moments and ledger, changed by one update at a time.

    Args:
        average_decay: 0 publishes the head itself, otherwise its exponential average.
        region: where the weights stay; everywhere unless given.
    """

    def __init__(
        self,
        state: AdamState,
        ledger: Ledger,
        aggregator: Aggregator,
        average_decay: float = 0.0,
        region: TrustRegion | None = None,
    ) -> None:
        self.state = state
        self.ledger = ledger
        self.aggregator = aggregator
        self._region = region
        self._average_decay = average_decay
        if average_decay == 0.0:
            state.average = None
        elif state.average is None:
            move_average(state, average_decay)
        self._bytes: tuple[int, bytes] | None = None
        self._waiting: deque[int] = deque(maxlen=_WAITING_KNOWN)

    @property
    def step(self) -> int:
        """How many updates made this head."""
        return self.state.step

    @property
    def weights(self) -> Weights:
        """The newest weights; changed in place by the next update."""
        return self.state.weights

    @property
    def publishable(self) -> Weights:
        """What a version is made of: the average of the head where one is kept, else the head."""
        return self.weights if self.state.average is None else self.state.average

    def moves_since(self, base_step: int) -> int:
        """Steps since a base that may have moved the weights: all but those of updates that wait for their cohort.

        Of what waited before this learner started nothing is known, and each counts.
        """
        return self.step - base_step - sum(1 for _ in takewhile(lambda step: step > base_step, reversed(self._waiting)))

    def weights_bytes(self) -> bytes:
        """The newest weights as they travel; one copy a step, however many ask."""
        if self._bytes is None or self._bytes[0] != self.step:
            self._bytes = (self.step, weights_to_bytes(self.weights))
        return self._bytes[1]

    def bound(self, region: TrustRegion | None) -> None:
        """Stay in another region from now on; what is outside of it comes back at once."""
        self._region = region
        if region is not None:
            for weights in (self.state.weights, self.state.average):
                if weights is not None:
                    region.keep_in(weights)
        self._bytes = None

    def snapshot(self, spec_digest: str, counters: Mapping[str, Any]) -> Snapshot:
        """The head as it is now, shared with nothing that goes on."""
        return Snapshot(spec_digest, self.state.copy(), self.ledger.to_json(), counters, self.aggregator.kept())

    def apply(self, applied: AppliedUpdate) -> None:
        """Apply the next update; `applied.step` must be the next step."""
        if applied.step != self.step + 1:
            raise ValueError(f"update {applied.step} cannot follow head step {self.step}")
        if applied.kind is UpdateKind.RESET:
            self._reset(applied)
        elif applied.kind is UpdateKind.PUBLISHED:
            self.state.step = applied.step
            self.state.idle_steps += 1
        else:
            moved = self.aggregator.apply(self.state, applied)
            if applied.kind is UpdateKind.ARRIVAL:
                self._waiting.append(applied.step)
            if moved and self._region is not None:
                self._region.keep_in(self.state.weights)
            if self._average_decay and moved:
                move_average(self.state, self._average_decay)
        self.ledger.record(applied)

    def skip_to(self, step: int) -> None:
        """Go on at a later step with the same weights, as after a reset: older gradients are refused."""
        self.ledger.spend_lost(step - self.step)
        self.state.idle_steps += step - self.step
        self.state.step = step
        self.ledger.reset_step, self.ledger.reset_version = step, 0
        self._bytes = None

    def _reset(self, applied: AppliedUpdate) -> None:
        """Go back to a version's head: weights, moments and their count, the average, what a strategy remembers."""
        target = parse_snapshot(applied.head, applied.update.spec_digest, f"update {applied.step} of the log")
        state, past = self.state, target.state
        state.weights[:] = past.weights
        state.first_moment[:] = past.first_moment
        state.second_moment[:] = past.second_moment
        if state.average is not None:
            state.average[:] = past.weights if past.average is None else past.average
        state.step = applied.step
        state.idle_steps = applied.step - (past.step - past.idle_steps)
        self.aggregator.reset(target.aggregator)
