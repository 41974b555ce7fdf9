"""Publication of the head as a version: decided by its step alone, so that a recovery decides the same again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from global_learner.aggregation.region import RegionAggregator
from global_learner.aggregation.settings import AggregationMode, AggregationSettings, PrivacySettings
from global_learner.beliefs.priors import VersionPriors
from global_learner.registry.cards import VersionCard, VersionDetails, VersionOrigin, kind_of
from global_learner.registry.registry import Registry
from global_learner.storage.snapshot import AdamState, AggregatorState, Snapshot, snapshot_parts
from global_learner.storage.update_records import AppliedUpdate
from global_learner.updates.head import Head
from global_learner.updates.ledger import NoiseSpent, SinceVersion
from global_learner.updates.privacy import statement
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import SetSpec, Spec, Weights


@dataclass(frozen=True, slots=True)
class Publication:
    """A version to be: a copy of the head at its step, and what happened since the one before.

    Attributes:
        weights: what the version is made of: the head's, or their average.
        state: the head itself, with its moments; None where nobody is to go back to it.
        memory: what the aggregator kept of it.
        noise: what the fleet's privacy had cost at the head.
    """

    head_step: int
    weights: Weights
    since: SinceVersion
    unix_seconds: float
    state: AdamState | None = None
    memory: AggregatorState = field(default_factory=AggregatorState)
    noise: NoiseSpent = field(default_factory=NoiseSpent)

    def policy_file(
        self, spec: Spec, priors: VersionPriors | None = None, privacy: PrivacySettings | None = None
    ) -> PolicyFile:
        """The file that agents fetch; only a policy that plans on beliefs takes priors along."""
        card: dict[str, Any] = {
            "source": "global-learner",
            "head_step": self.head_step,
            "updates": self.since.contributions.total(),
            "contributions": dict(self.since.contributions),
            "staleness_p50": self.since.staleness_p50,
        }
        if privacy is not None:
            card["privacy"] = statement(privacy, self.noise)
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
        policy = self.policy_file(spec, priors, privacy)
        details = VersionDetails(
            staleness_p90=self.since.staleness_p90,
            staleness_max=self.since.staleness_max,
            rejections=dict(rejections),
            aggregation=described(aggregation),
            origin=VersionOrigin.TRAINED.value,
            policy=kind_of(policy),
            prior_statistics=len(policy.priors),
            notes=f"after the head was reset to v{self.since.parent}" if self.since.parent else "",
            privacy=statement(privacy, self.noise),
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
    return Publication(step, weights, since, unix_seconds, state, head.aggregator.kept(), head.ledger.noise_spent)


def described(aggregation: AggregationSettings) -> str:
    """How updates become steps, for people."""
    if aggregation.mode is AggregationMode.ASYNC:
        return aggregation.mode.value
    return f"{aggregation.mode.value} {aggregation.strategy}"
