"""Intake of what clusters tell of speeds: checked for whether it can be true, kept and counted; not yet believed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from global_learner.beliefs.belief_store import BeliefStore, BeliefSummary
from global_learner.beliefs.priors import PriorsSource
from global_learner.errors import BeliefRefusal, BeliefsRefused
from global_learner.registry.registry_thread import RegistryThread
from global_learner.section_settings import BeliefSettings
from global_learner.telemetry import LearnerTelemetry
from policy_net.domain import MOST_SAMPLES_PER_WORKER_SECOND
from policy_net.errors import ImpossibleStatistics
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.exchange.wire import statistics_of

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
            f"{len(messages)} job types; at most {settings.max_types_per_cluster} are taken "
            "(beliefs.max_types_per_cluster)",
        )
    count = sum(len(message.ps) for message in messages)
    if count > settings.max_statistics:
        raise BeliefsRefused(
            BeliefRefusal.TOO_MANY_STATISTICS,
            f"{count} statistics; at most {settings.max_statistics} are taken (beliefs.max_statistics)",
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
