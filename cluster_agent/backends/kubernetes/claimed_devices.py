"""Claimed devices, followed: claims and slices of a server that has them (`resource.k8s.io`), in any version.

Where the server has none, or they may not be read, nothing is taken by claims: it is logged once, and tried again now
and then, as a server is upgraded and a right is given while an agent runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import structlog

from cluster_agent.kubernetes.api_server import ApiServer
from cluster_agent.kubernetes.cache import Cache
from cluster_agent.kubernetes.capacity import NodeFacts
from cluster_agent.kubernetes.device_claims import (
    GROUP,
    ClaimFacts,
    SliceFacts,
    claim_facts,
    claims,
    less_taken,
    served_version,
    slice_facts,
    slices,
    taken_devices,
)
from cluster_agent.kubernetes.errors import ApiError, NotFound
from cluster_agent.kubernetes.list_watch import ListWatch, own_seed
from cluster_agent.kubernetes.resources import Json, Resource
from foundation.backoff import Backoff
from foundation.text import plain_line

_log = structlog.get_logger()

Kept = TypeVar("Kept")
_AGAIN_SECONDS = 600.0
"""Between two looks whether a server has the resource by now."""
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.5, 30.0


class _MaybeServed(Generic[Kept]):
    """Follows one resource that the server may not have; `run` is called by one thread."""

    def __init__(
        self,
        api: ApiServer,
        resource: Callable[[str], Resource],
        keep: Callable[[Json], Kept | None],
        clock: Callable[[], float],
        on_change: Callable[[], None],
    ) -> None:
        self._api, self._resource, self._clock = api, resource, clock
        self.cache: Cache[Kept] = Cache(keep, clock, on_change)
        self._trouble = ""
        self._following: ListWatch[Kept] | None = None
        self._is_stopped = False

    @property
    def is_settled(self) -> bool:
        """Whether it was read, or it is known why it was not."""
        troubled = self._trouble or (self._following is not None and self._following.trouble)
        return self.cache.is_synced or bool(troubled)

    def run(self, wait: Callable[[float], bool]) -> None:
        """Follow until told to stop."""
        version = self._version(wait)
        if version:
            self._following = ListWatch(self._api, self._resource(version), self.cache, self._clock)
            if not self._is_stopped:
                self._following.run(wait)

    def stop(self) -> None:
        """End what is being followed; from any thread."""
        self._is_stopped = True
        if self._following is not None:
            self._following.stop()

    def _version(self, wait: Callable[[float], bool]) -> str:
        """The version that the server has, once it has one; empty when to stop."""
        backoff = Backoff(f"{own_seed()}/{GROUP}", _FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS)
        while True:
            seconds = _AGAIN_SECONDS
            try:
                version = served_version(self._api.get(f"/apis/{GROUP}"))
                if version:
                    self._trouble = ""
                    return version
                self._say("the server has no version of it that is understood")
            except NotFound:
                self._trouble = "the server does not have it"  # as most have not: nothing to tell
            except ApiError as error:
                self._say(plain_line(str(error)))
                seconds = backoff.next_seconds()
            if wait(seconds):
                return ""

    def _say(self, line: str) -> None:
        if line != self._trouble:
            _log.warning("device-claims-not-read", group=GROUP, resource=self._resource("").plural, error=line)
        self._trouble = line


class ClaimedDevices:
    """What claims hold; each of `followings` is to be run by a thread of its own.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, api: ApiServer, clock: Callable[[], float], on_change: Callable[[], None]) -> None:
        self._claims: _MaybeServed[ClaimFacts] = _MaybeServed(api, claims, claim_facts, clock, on_change)
        self._slices: _MaybeServed[SliceFacts] = _MaybeServed(api, slices, slice_facts, clock, on_change)

    @property
    def followings(self) -> dict[str, Callable[[Callable[[float], bool]], None]]:
        """What follows each resource; it takes a wait of so many seconds that returns True when to stop."""
        return {"watch-resourceclaims": self._claims.run, "watch-resourceslices": self._slices.run}

    @property
    def is_settled(self) -> bool:
        """Whether all that can be known is; before that, what claims hold would be given away."""
        return self._claims.is_settled and self._slices.is_settled

    def less(self, nodes: Iterable[NodeFacts]) -> list[NodeFacts]:
        """Nodes without the devices that claims hold."""
        held = (entry.kept for entry in self._claims.cache.entries().values())
        offered = (entry.kept for entry in self._slices.cache.entries().values())
        return less_taken(nodes, taken_devices(held, offered))

    def stop(self) -> None:
        """Follow no longer; from any thread."""
        self._claims.stop()
        self._slices.stop()
