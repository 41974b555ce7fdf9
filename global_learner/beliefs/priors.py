"""Beliefs of the fleet: clusters' reports of speeds, checked and kept, and the priors of the next version made of them.

A report is checked for whether it can be true. It is believed only as far as the reports of others, the versions before
and the standing of its cluster allow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from global_learner.beliefs.belief_store import LONGEST_STANDING, BeliefStore, BeliefSummary
from global_learner.beliefs.bounds import bounded
from global_learner.errors import BeliefRefusal, BeliefsRefused
from global_learner.registry.registry import Registry
from global_learner.registry.registry_thread import RegistryThread
from global_learner.section_settings import BeliefSettings
from global_learner.telemetry import LearnerTelemetry
from policy_net.domain import MOST_SAMPLES_PER_WORKER_SECOND
from policy_net.errors import ImpossibleStatistics
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.spec import SetSpec, WeightSpec
from policy_net.exchange.statistics import CLUSTER_COUNT, SpeedStatistic, statistics_digest
from policy_net.exchange.wire import statistics_of
from policy_net.throughput.fleet_priors import by_type, merge_fleet

_log = structlog.get_logger()


_NEWCOMER = 0.25
"""What the report of a cluster that had a part in no version yet weighs beside those that had in many."""

Excluded = Callable[[str, float], bool]
"""Whether a cluster's report, of these Unix seconds, does not count: quarantined, turned out."""


@dataclass(frozen=True, slots=True)
class VersionPriors:
    """What a version says of speeds, from how many clusters (0: v1's file) and from how many observed intervals.

    Types that are `held_back` are those of which a report would have moved something further than one cluster may.
    """

    statistics: tuple[SpeedStatistic, ...]
    clusters: int = 0
    observations: int = 0
    held_back: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """For a version's card."""
        left = {"held_back": list(self.held_back)} if self.held_back else {}
        return left | {
            "digest": statistics_digest(self.statistics),
            "statistics": len(self.statistics),
            "types": len({entry.job_type for entry in self.statistics}),
            "observations": self.observations,
            "clusters": self.clusters,
        }


def priors_for(spec: WeightSpec, source: PriorsSource | None) -> VersionPriors | None:
    """What a version of this spec says of speeds; None for policies that do not ask. Raises as `PriorsSource`."""
    return source.now() if source is not None and isinstance(spec, SetSpec) else None


class PriorsSource:
    """Makes priors of what is in the store, of v1 and of the newest version; called on the registry's thread.

    Raises of all methods:
        StateUnusable: what is on disk is not what was written.
    """

    def __init__(
        self,
        store: BeliefStore,
        settings: BeliefSettings,
        registry: Registry,
        telemetry: LearnerTelemetry,
    ) -> None:
        """`registry` has v1, for what the fleet does not know (yet), and the newest version."""
        self._store = store
        self._settings = settings
        self._registry = registry
        self._base: tuple[SpeedStatistic, ...] | None = None
        self._telemetry = telemetry
        self._excluded: list[Excluded] = []

    def exclude(self, excluded: Excluded) -> None:
        """Let reports of such clusters not count from now on."""
        self._excluded.append(excluded)

    def begin(self, first: tuple[SpeedStatistic, ...]) -> None:
        """Take what v1 says, which was read at the start: its file is not needed again."""
        self._base = first

    def now(self) -> VersionPriors:
        """What a version that is made now says."""
        if self._base is None:
            self._base = self._registry.first_priors()
        reports = self._store.reports(lambda cluster, at: not self._is_out(cluster, at))
        reported = [by_type(entries) for entries in reports.values()]
        turned_out = [by_type(entries) for entries in self._store.reports(self._is_out).values()]
        spoken = self._registry.newest_priors()
        newest = by_type(self._base if spoken is None else spoken)
        first = {(entry.job_type, entry.kind) for entry in self._base}
        enough = self._settings.large_move_clusters
        standard = self._store.standard().after(newest, reported, first, enough)
        counting = standard.without(turned_out, reported)
        before = {**counting.silenced, **newest}
        known = _flat({**counting.agreed, **before})
        merged = merge_fleet(
            _weighted(reports, self._store.standings()), self._base, self._settings.min_clusters, known
        )
        if merged.withheld or merged.left_out:
            _log.warning(
                "beliefs-contradicted",
                types_withheld=list(merged.withheld),
                left_out=[f"{cluster}: {job_type}" for cluster, job_type in merged.left_out],
            )
        odd = {cluster for cluster, _ in merged.left_out}
        left_out = set(merged.left_out)
        heard = {
            cluster: [entry for entry in entries if (cluster, entry.job_type) not in left_out]
            for cluster, entries in reports.items()
        }
        bounds = bounded(merged.statistics, heard, _flat(before), self._base, enough, counting.agreed)
        if bounds.held_back:
            _log.warning(
                "beliefs-held-back",
                types=list(bounds.held_back),
                meaning=f"a large move needs {enough} clusters that tell of it",
            )
        self._store.keep_standard(standard.needed(newest.keys(), {entry.job_type for entry in bounds.statistics}))
        self._store.note_version(set(reports) - odd, odd)
        self._telemetry.on_priors(merged, len(bounds.held_back))
        return VersionPriors(bounds.statistics, merged.clusters, merged.observations, bounds.held_back)

    def reported(self) -> tuple[SpeedStatistic, ...]:
        """What the clusters of a region have told, merged, for the learner above; nothing of its versions is in it."""
        reports = self._store.reports(lambda cluster, at: not self._is_out(cluster, at))
        # What the newest version says decides where as many clusters say one kind of a type as another.
        known = self._registry.newest_priors() or ()
        return merge_fleet(
            _weighted(reports, self._store.standings()), (), self._settings.min_clusters, known
        ).statistics

    def _is_out(self, cluster: str, at: float) -> bool:
        return any(excluded(cluster, at) for excluded in self._excluded)


def _flat(types: Mapping[str, Sequence[SpeedStatistic]]) -> list[SpeedStatistic]:
    return [entry for rows in types.values() for entry in rows]


def _weighted(
    reports: Mapping[str, Sequence[SpeedStatistic]], standings: Mapping[str, int]
) -> dict[str, Sequence[SpeedStatistic]]:
    """The reports, with fewer observations where a cluster is new among clusters that are known.

    A newcomer counts for a quarter as much as one that had a part in many versions, and a little more with each. Where
    all are equally known, nothing is changed.
    """
    longest = min(LONGEST_STANDING, max((standings.get(cluster, 0) for cluster in reports), default=0))
    weights = {cluster: max(_NEWCOMER, (1 + standings.get(cluster, 0)) / (1 + longest)) for cluster in reports}
    return {
        cluster: entries if weights[cluster] >= 1.0 else [_counted(entry, weights[cluster]) for entry in entries]
        for cluster, entries in reports.items()
    }


def _counted(entry: SpeedStatistic, weight: float) -> SpeedStatistic:
    return replace(entry, count=max(1, round(weight * min(entry.count, CLUSTER_COUNT))))


_NOTHING = BeliefSummary(0, 0)
_SLOWEST = math.log(1e-6)
"""Log samples/s: a sample in eleven days."""
_MOST_OBSERVATIONS = 10**12
_LARGEST_REVISION = 2**63 - 1
"""SQLite's largest integer."""


class FleetBeliefs:
    """All that a learner has to do with beliefs; `priors` is what the next version says."""

    def __init__(
        self,
        store: BeliefStore,
        priors: PriorsSource,
        settings: BeliefSettings,
        thread: RegistryThread,
        telemetry: LearnerTelemetry,
        wall_clock: Callable[[], float],
    ) -> None:
        self.priors = priors
        self._store = store
        self._settings = settings
        self._thread = thread
        self._telemetry = telemetry
        self._wall_clock = wall_clock
        telemetry.job_types.set_function(lambda: store.types)

    async def on_report(
        self, cluster: str, incarnation: int, revision: int, types: Sequence[fleet_pb2.TypeStatistics]
    ) -> bool:
        """Keep what a registered cluster has seen of speeds, on disk; False if it is here already.

        Raises:
            BeliefsRefused: it cannot be true, or is too much; nothing is changed.
        """
        try:
            statistics = checked_report(revision, types, self._settings)
        except BeliefsRefused as refused:
            self._telemetry.belief_reports.labels(refused.reason).inc()
            raise
        taken = await self._thread.call(
            self._store.report, cluster, incarnation, revision, statistics, self._wall_clock()
        )
        self._telemetry.belief_reports.labels("taken" if taken else "repeated").inc()
        return taken

    def summary(self, cluster: str) -> BeliefSummary:
        """What is held of a cluster."""
        return self._store.summaries.get(cluster, _NOTHING)


def checked_report(
    revision: int, messages: Sequence[fleet_pb2.TypeStatistics], settings: BeliefSettings
) -> tuple[SpeedStatistic, ...]:
    """The statistics of a report.

    Raises:
        BeliefsRefused: there are too many, or they cannot have been observed.
    """
    if not 0 < revision <= _LARGEST_REVISION:
        raise BeliefsRefused(BeliefRefusal.BAD_REVISION, f"revision {revision}; they begin at 1")
    if len(messages) > settings.max_types_per_cluster:
        raise BeliefsRefused(
            BeliefRefusal.TOO_MANY_TYPES,
            f"{len(messages)} job types; at most {settings.max_types_per_cluster} are taken",
        )
    count = sum(len(message.ps) for message in messages)
    if count > settings.max_statistics:
        raise BeliefsRefused(
            BeliefRefusal.TOO_MANY_STATISTICS,
            f"{count} statistics; at most {settings.max_statistics} are taken",
        )
    for message in messages:
        if not message.job_type.isprintable():  # said before the statistics are, in words of its own
            raise BeliefsRefused(BeliefRefusal.BAD_NAME, f"job type {message.job_type[:64]!r} has unprintable letters")
    try:
        statistics = statistics_of(messages)
    except ImpossibleStatistics as error:
        raise BeliefsRefused(BeliefRefusal.IMPOSSIBLE, str(error)) from error
    for entry in statistics:
        fastest = math.log(MOST_SAMPLES_PER_WORKER_SECOND * entry.workers)
        if not _SLOWEST <= entry.mean_log_speed <= fastest or entry.count > _MOST_OBSERVATIONS:
            raise BeliefsRefused(
                BeliefRefusal.OUT_OF_RANGE,
                f"type {entry.job_type[:64]!r}: a log speed of {entry.mean_log_speed:g} from {entry.count} "
                f"observations is beyond all computers; speeds lie within {_SLOWEST:.1f} and {fastest:.1f}",
            )
    return statistics
