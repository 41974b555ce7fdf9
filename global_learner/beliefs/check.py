"""Whether a cluster's report of speeds can be true at all; what can be is not yet believed (see `fleet_priors`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from global_learner.beliefs.settings import BeliefSettings
from global_learner.errors import BeliefRefusal, BeliefsRefused
from policy_net.errors import ImpossibleStatistics
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.exchange.wire import statistics_of

_SLOWEST, _FASTEST = math.log(1e-6), math.log(1e9)
"""Log samples/s: a sample in eleven days, and more than a GPU can read."""
_MOST_OBSERVATIONS = 10**12
_LARGEST_REVISION = 2**63 - 1
"""SQLite's largest integer."""


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
        if not message.job_type.isprintable():
            raise BeliefsRefused(BeliefRefusal.BAD_NAME, f"job type {message.job_type[:64]!r} has unprintable letters")
    try:
        statistics = statistics_of(messages)
    except ImpossibleStatistics as error:
        raise BeliefsRefused(BeliefRefusal.IMPOSSIBLE, str(error)) from error
    for entry in statistics:
        if not _SLOWEST <= entry.mean_log_speed <= _FASTEST or entry.count > _MOST_OBSERVATIONS:
            raise BeliefsRefused(
                BeliefRefusal.OUT_OF_RANGE,
                f"type {entry.job_type[:64]!r}: a log speed of {entry.mean_log_speed:g} from {entry.count} "
                f"observations is beyond all computers; speeds lie within {_SLOWEST:.1f} and {_FASTEST:.1f}",
            )
    return statistics
