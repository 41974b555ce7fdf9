"""When the head becomes a version: decided by its step alone, so that a recovery decides the same again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from global_learner.beliefs.priors import VersionPriors
from global_learner.head import Head
from global_learner.ledger import SinceVersion
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.set_spec import SetSpec, Spec
from policy_net.exchange.spec import Weights


@dataclass(frozen=True, slots=True)
class Publication:
    """A version to be: a copy of the head at its step, and what happened since the one before."""

    head_step: int
    weights: Weights
    since: SinceVersion
    unix_seconds: float

    def policy_file(self, spec: Spec, priors: VersionPriors | None = None) -> PolicyFile:
        """The file that agents fetch; only a policy that plans on beliefs takes priors along."""
        card: dict[str, Any] = {
            "source": "global-learner",
            "head_step": self.head_step,
            "updates": self.since.contributions.total(),
            "contributions": dict(self.since.contributions),
            "staleness_p50": self.since.staleness_p50,
        }
        if priors is None or not isinstance(spec, SetSpec):
            return PolicyFile(spec, self.weights, card)
        return PolicyFile(spec, self.weights, {**card, "priors": priors.facts()}, priors.statistics)


def due_publication(head: Head, every_steps: int, unix_seconds: float) -> Publication | None:
    """The version that is due at the head's step, or None; taking it starts the next version's count."""
    if head.step % every_steps:
        return None
    return Publication(head.step, head.publishable.copy(), head.ledger.take_since_version(), unix_seconds)
