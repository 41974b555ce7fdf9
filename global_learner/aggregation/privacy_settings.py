"""Settings of the section `privacy` of the learner."""

from __future__ import annotations

from enum import StrEnum

from global_learner.aggregation.settings import AggregationMode, AggregationSettings
from policy_net.privacy.settings import NoiseSettings


class PrivacyMode(StrEnum):
    """Who adds the noise."""

    CENTRAL = "central"
    LOCAL = "local"


class PrivacySettings(NoiseSettings):
    """Differential privacy of one cluster's updates; off where the section is left out."""

    mode: PrivacyMode = PrivacyMode.CENTRAL
    """`central`: the learner clips and adds noise to each update before it writes or applies it. `local`: agents do so
    before anything leaves them (their own section `privacy`); the learner takes no update that does not say so, and
    counts what they spend. It cannot see whether what an agent says is true."""


def check_covered(aggregation: AggregationSettings, *, is_region: bool) -> None:
    """See that noise can be put on what this learner learns from.

    Raises:
        ValueError: privacy does not cover that; one line.
    """
    if aggregation.mode is AggregationMode.ROUNDS:
        raise ValueError(
            "privacy does not cover aggregation.mode rounds, whose answers are no single gradients: take async, "
            "buffered or robust, or leave privacy out"
        )
    if is_region:
        raise ValueError(
            "privacy is for the learner that makes versions, and upstream makes this one a region, whose versions are "
            "made above: set privacy there, and in the clusters, or leave out upstream"
        )
