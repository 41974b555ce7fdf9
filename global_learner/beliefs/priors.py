"""Priors of the next version: what the clusters told, merged, by those that count now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from global_learner.beliefs.belief_store import BeliefSettings, BeliefStore
from global_learner.telemetry import Telemetry
from policy_net.exchange.spec import SetSpec, WeightSpec
from policy_net.exchange.statistics import SpeedStatistic, statistics_digest
from policy_net.throughput.fleet_priors import merge_fleet

_log = structlog.get_logger()

Excluded = Callable[[str, float], bool]
"""Whether a cluster's report, of these Unix seconds, does not count: quarantined, turned out."""


@dataclass(frozen=True, slots=True)
class VersionPriors:
    """What a version says of speeds, and where that comes from.

    Attributes:
        clusters: how many told it; 0 for what stood in the first policy file.
        observations: intervals behind their reports.
    """

    statistics: tuple[SpeedStatistic, ...]
    clusters: int = 0
    observations: int = 0

    def facts(self) -> dict[str, Any]:
        """For a version's card."""
        return {
            "digest": statistics_digest(self.statistics),
            "statistics": len(self.statistics),
            "types": len({entry.job_type for entry in self.statistics}),
            "observations": self.observations,
            "clusters": self.clusters,
        }


def priors_for(spec: WeightSpec, source: PriorsSource | None) -> VersionPriors | None:
    """What a version of this spec says of speeds; None for policies that do not ask.

    Raises:
        StateUnusable: what is on disk is not what was written.
    """
    return source.now() if source is not None and isinstance(spec, SetSpec) else None


class PriorsSource:
    """Makes priors of what is in the store; called on the registry's thread."""

    def __init__(
        self,
        store: BeliefStore,
        settings: BeliefSettings,
        first_priors: Callable[[], tuple[SpeedStatistic, ...]],
        telemetry: Telemetry,
    ) -> None:
        """`first_priors` reads what stands in v1, for what the fleet does not know (yet); asked once."""
        self._store = store
        self._settings = settings
        self._first_priors = first_priors
        self._base: tuple[SpeedStatistic, ...] | None = None
        self._telemetry = telemetry
        self._excluded: list[Excluded] = []

    def exclude(self, excluded: Excluded) -> None:
        """Let reports of such clusters not count from now on."""
        self._excluded.append(excluded)

    def now(self) -> VersionPriors:
        """What a version that is made now says.

        Raises:
            StateUnusable: what is on disk is not what was written.
        """
        if self._base is None:
            self._base = self._first_priors()
        if not self._settings.into_versions:
            return VersionPriors(self._base)
        reports = self._store.reports(lambda cluster, at: not any(excluded(cluster, at) for excluded in self._excluded))
        merged = merge_fleet(reports, self._base, self._settings.min_clusters)
        if merged.withheld or merged.left_out:
            _log.warning(
                "beliefs-contradicted",
                types_withheld=list(merged.withheld),
                left_out=[f"{cluster}: {job_type}" for cluster, job_type in merged.left_out],
            )
        self._telemetry.on_priors(merged)
        return VersionPriors(merged.statistics, merged.clusters, merged.observations)
