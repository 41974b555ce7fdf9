"""What a parameter server tells the coordinator: at once what others wait for, the rest every so often."""

from __future__ import annotations

from collections.abc import Callable

from elastic_runtime.control.client import MemberLink
from elastic_runtime.member.outbox import traffic_bytes
from elastic_runtime.server.protocol.part import ServerPart
from elastic_runtime.server.shards import Shards
from elastic_runtime.server.store import BlockStore
from elastic_runtime.transport import Endpoint

_REPORT_SECONDS = 0.5


class ServerReports:
    """One server's reports.

    Args:
        link: to the coordinator.
        endpoint: whose traffic is told.
        part: what the server does.
        store: its blocks.
        shards: its parts of checkpoints.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        link: MemberLink,
        endpoint: Endpoint,
        part: ServerPart,
        store: BlockStore,
        shards: Shards,
        clock: Callable[[], float],
    ) -> None:
        self._link, self._endpoint = link, endpoint
        self._part, self._store, self._shards = part, store, shards
        self._clock = clock
        self._told_seconds = 0.0
        self._told_arrived = 0
        self._told_suspects: tuple[str, ...] = ()

    def tell(self) -> None:
        """Tell what is new, if it is time for it."""
        part, now = self._part, self._clock()
        finished = self._shards.finished() if self._shards.busy else None
        if finished is not None:
            self._link.report(shards=finished)
        if part.arrived != self._told_arrived:
            self._told_arrived = part.arrived
            self._link.report(arrived=part.arrived, moved_bytes=part.moved_bytes, stall_seconds=part.stall_seconds)
        if part.suspects != self._told_suspects:
            self._told_suspects = part.suspects
            self._link.report(suspects=part.suspects)
        # What moved is told with the arrival of all of it: a report for each block would take time from the steps.
        if now - self._told_seconds >= _REPORT_SECONDS:
            self._tell_progress(now)

    def _tell_progress(self, now: float) -> None:
        part = self._part
        self._told_seconds = now
        sent, received = traffic_bytes(self._endpoint)
        self._link.report(
            step=part.lowest_version,
            owned_bytes=sum(part.layout.blocks[block].size_bytes for block in self._store.owned),
            moved_bytes=part.moved_bytes,
            stall_seconds=part.stall_seconds,
            bytes_sent=sent,
            bytes_received=received,
            staleness=part.staleness_versions,
        )
