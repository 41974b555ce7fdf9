"""Speed statistics on the wire: one message a type, its splits in four lists that go together.

What is not one of `SpeedStatistic`'s six fields has no place in the messages, so that nothing else can leave a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from policy_net.domain import JobKind
from policy_net.errors import ImpossibleStatistics
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.statistics import SpeedStatistic


def type_messages(statistics: Iterable[SpeedStatistic]) -> list[fleet_pb2.TypeStatistics]:
    """The wire form, one message a type and kind, in the order of their first statistic."""
    messages: dict[tuple[str, JobKind], fleet_pb2.TypeStatistics] = {}
    for entry in statistics:
        message = messages.setdefault(
            (entry.job_type, entry.kind), fleet_pb2.TypeStatistics(job_type=entry.job_type, kind=entry.kind.value)
        )
        message.ps.append(entry.ps)
        message.workers.append(entry.workers)
        message.mean_log_speed.append(entry.mean_log_speed)
        message.count.append(entry.count)
    return list(messages.values())


def statistics_of(messages: Sequence[fleet_pb2.TypeStatistics]) -> tuple[SpeedStatistic, ...]:
    """The inverse of `type_messages`; every split once, every type of one kind.

    Raises:
        ImpossibleStatistics: they cannot have been observed.
    """
    found: dict[tuple[str, int, int], SpeedStatistic] = {}
    kinds: dict[str, str] = {}
    for message in messages:
        name = message.job_type[:64]
        if kinds.setdefault(message.job_type, message.kind) != message.kind:
            raise ImpossibleStatistics(f"type {name!r} is reported as {kinds[message.job_type]!r} and {message.kind!r}")
        lists = (message.ps, message.workers, message.mean_log_speed, message.count)
        if len({len(values) for values in lists}) != 1:
            raise ImpossibleStatistics(f"type {name!r}: its lists have {[len(values) for values in lists]} entries")
        for ps, workers, mean, count in zip(*lists, strict=True):
            try:
                entry = SpeedStatistic(message.job_type, JobKind(message.kind), ps, workers, mean, count)
            except ValueError as error:
                raise ImpossibleStatistics(f"type {name!r}: {error}") from error
            if (message.job_type, ps, workers) in found:
                raise ImpossibleStatistics(f"type {name!r}: {ps} PSs and {workers} workers are reported twice")
            found[message.job_type, ps, workers] = entry
    return tuple(found[split] for split in sorted(found))
