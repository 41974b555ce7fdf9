"""How much clusters may tell of speeds, and when it is passed on."""

from __future__ import annotations

from pydantic import Field

from policy_net.settings import Section


class BeliefSettings(Section):
    """What clusters tell of speeds, and how it becomes the priors of `set` versions."""

    into_versions: bool = True
    """Whether versions of a policy that plans on beliefs carry the fleet's merged priors; else those of v1."""
    min_clusters: int = Field(1, ge=1, le=100_000)
    """A job type's speeds are passed on once so many clusters have told of it. 1: one cluster's experience helps the
    next. 2 or more where no cluster is to learn the name of a type that only one other runs."""
    max_types: int = Field(1024, ge=1, le=100_000)
    """Job types in the fleet's vocabulary; further ones are left out of reports, and the agent is told so."""
    max_types_per_cluster: int = Field(128, ge=1, le=100_000)
    """How many of them one cluster may bring in: nobody fills the vocabulary alone. Also the most in a report."""
    max_statistics: int = Field(16_384, ge=1, le=100_000)
    """Splits in one report; it is refused beyond. Twice what an agent sends; a report of so many is 180 kB."""
