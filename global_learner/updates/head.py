"""Head of the learner: the newest weights, the record of how they came about, and their publication as versions.

Live updates and replayed ones go through the same `apply`, so that a recovered head is the lost one, bit for bit; and
when a version is due follows from the head's step alone, so that a recovery decides the same again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from types import MappingProxyType
from typing import Any

from global_learner.aggregation.base import Aggregator, move_average
from global_learner.aggregation.region import RegionAggregator
from global_learner.aggregation.settings import AggregationMode, AggregationSettings, PrivacySettings
from global_learner.beliefs.priors import VersionPriors
from global_learner.registry.cards import VersionCard, VersionDetails, VersionOrigin, kind_of
from global_learner.registry.registry import Registry
from global_learner.storage.snapshot import AdamState, AggregatorState, Snapshot, parse_snapshot, snapshot_parts
from global_learner.storage.update_records import AppliedUpdate, UpdateKind
from global_learner.updates.ledger import Ledger, NoiseSpent, SinceVersion
from policy_net.exchange.policy_file import LESSONS, TAUGHT, PolicyFile
from policy_net.exchange.spec import SetSpec, Spec, Weights, weights_to_bytes
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
        self.ledger.unlearn(target.ledger.get(LESSONS, {}))


@dataclass(frozen=True, slots=True)
class Publication:
    """A version to be: a copy of the head at its step, and what happened since the one before.

    Attributes:
        weights: what the version is made of: the head's, or their average.
        state: the head itself, with its moments; None where nobody is to go back to it.
        memory: what the aggregator kept of it.
        noise: what the fleet's privacy had cost at the head.
        lessons: updates that led to it, by cluster.
    """

    head_step: int
    weights: Weights
    since: SinceVersion
    unix_seconds: float
    state: AdamState | None = None
    memory: AggregatorState = field(default_factory=AggregatorState)
    noise: NoiseSpent = field(default_factory=NoiseSpent)
    lessons: Mapping[str, int] = field(default_factory=dict)

    def policy_file(
        self,
        spec: Spec,
        priors: VersionPriors | None = None,
        privacy: PrivacySettings | None = None,
        first_card: Mapping[str, Any] = MappingProxyType({}),
    ) -> PolicyFile:
        """The file that agents fetch; only a policy that plans on beliefs takes priors along.

        Args:
            first_card: of v1; what it was taught for, a version is, and for the jobs of clusters with enough lessons.
        """
        card: dict[str, Any] = {
            "source": "global-learner",
            "head_step": self.head_step,
            "updates": self.since.contributions.total(),
            "contributions": dict(self.since.contributions),
            "staleness_p50": self.since.staleness_p50,
        }
        if privacy is not None:
            card["privacy"] = self.noise.statement(privacy)
        if isinstance(taught := first_card.get(TAUGHT), dict):
            card[TAUGHT] = {**taught, LESSONS: dict(self.lessons)}
        if priors is None or not isinstance(spec, SetSpec):
            return PolicyFile(spec, self.weights, card)
        return PolicyFile(spec, self.weights, {**card, "priors": priors.facts()}, priors.statistics)

    def publish(
        self,
        registry: Registry,
        spec: Spec,
        priors: VersionPriors | None,
        aggregation: AggregationSettings,
        rejections: Mapping[str, int],
        assign_all: bool,
        privacy: PrivacySettings | None = None,
    ) -> VersionCard:
        """Enter it into the registry, with what `head reset` needs to go on from it."""
        policy = self.policy_file(spec, priors, privacy, registry.first_card())
        details = VersionDetails(
            staleness_p90=self.since.staleness_p90,
            staleness_max=self.since.staleness_max,
            rejections=dict(rejections),
            aggregation=described(aggregation),
            origin=VersionOrigin.TRAINED.value,
            policy=kind_of(policy),
            prior_statistics=len(policy.priors),
            notes=f"after the head was reset to v{self.since.parent}" if self.since.parent else "",
            privacy=self.noise.statement(privacy),
        )
        head = None
        if self.state is not None:
            head = b"".join(snapshot_parts(Snapshot(spec.digest, self.state, {}, {}, self.memory)))
        return registry.publish(
            policy,
            self.head_step,
            self.unix_seconds,
            dict(self.since.contributions),
            self.since.staleness_p50,
            assign_all,
            details,
            head,
            self.since.parent,
        )


def note_reset(registry: Registry, applied: AppliedUpdate) -> None:
    """Write a reset of the log down for people, if that was not done yet."""
    update = applied.update
    registry.note_reset(update.sequence, applied.step - 1, applied.step, update.cluster, applied.unix_seconds)


def due_publication(head: Head, every_steps: int, unix_seconds: float) -> Publication | None:
    """The version that is due at the head's step, or None; taking it starts the next version's count.

    A head that was just reset is a version already, and a step at which one came from elsewhere is that one's; versions
    of a region come from the learner above.
    """
    step = head.step
    taken = (head.ledger.reset_step, head.ledger.published_step)
    if step % every_steps or step in taken or isinstance(head.aggregator, RegionAggregator):
        return None
    weights, state = head.publishable.copy(), head.state.copy()
    since = head.ledger.take_since_version()
    lessons = {cluster: record.lessons for cluster, record in head.ledger.clusters.items()}
    memory, noise = head.aggregator.kept(), head.ledger.noise_spent
    return Publication(step, weights, since, unix_seconds, state, memory, noise, lessons)


def described(aggregation: AggregationSettings) -> str:
    """How updates become steps, for people."""
    if aggregation.mode is AggregationMode.ASYNC:
        return aggregation.mode.value
    return f"{aggregation.mode.value} {aggregation.strategy}"
