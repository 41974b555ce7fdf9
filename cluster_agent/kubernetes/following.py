"""Following of a resource in several namespaces: each is listed and watched by itself, all into one cache.

Whoever has rights in some namespaces only may not list those of all. What goes wrong in one of them, a right that is
missing or a watch that says nothing, is told of that one, and the others are followed on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from cluster_agent.kubernetes.api_server import Json, Query
from cluster_agent.kubernetes.cache import Cache
from cluster_agent.kubernetes.list_watch import ListWatch, Source
from cluster_agent.kubernetes.resources import Resource

Kept = TypeVar("Kept")
STALE_SECONDS = 180.0
"""What was heard longer ago is nothing to decide by; bookmarks come every minute."""


class Following(Generic[Kept]):
    """A cache, and who keeps it.

    Args:
        keep: what to keep of an object; None where it is of no interest.
        clock: monotonic seconds.
        on_change: is called after every change, by the thread that follows.
        namespaces: to follow; an empty name stands for all there are.
        selectors: `labelSelector`, `fieldSelector`.
        seed: of the waits; agents differ in it.
    """

    def __init__(
        self,
        source: Source,
        resource: Resource,
        keep: Callable[[Json], Kept | None],
        clock: Callable[[], float],
        on_change: Callable[[], None],
        namespaces: Sequence[str] = ("",),
        selectors: Query | None = None,
        seed: int | str = 0,
    ) -> None:
        self._plural = resource.plural
        self.cache: Cache[Kept] = Cache(keep, clock, on_change, namespaces)
        self._watches = {
            namespace: ListWatch(source, resource, self.cache, clock, namespace, selectors, seed)
            for namespace in namespaces
        }

    def threads(self, wait: Callable[[float], bool]) -> list[threading.Thread]:
        """Those that follow, not started yet.

        Args:
            wait: waits so many seconds; True when to stop.
        """
        return [
            threading.Thread(target=watch.run, args=(wait,), name=f"watch-{self._plural}-{namespace}", daemon=True)
            for namespace, watch in self._watches.items()
        ]

    def stop(self) -> None:
        """End the watches; from any thread."""
        for watch in self._watches.values():
            watch.stop()

    @property
    def trouble(self) -> str:
        """What went wrong last, in a line; empty where all is well."""
        return next((watch.trouble for watch in self._watches.values() if watch.trouble), "")

    @property
    def is_settled(self) -> bool:
        """Whether everything was read once, but for namespaces of several that cannot be read."""
        read = [self.cache.has_read(namespace) for namespace in self._watches]
        tried = [bool(watch.trouble) for watch in self._watches.values()]
        return all(read) or (any(read) and all(each or failed for each, failed in zip(read, tried, strict=True)))

    @property
    def is_stale(self) -> bool:
        """Whether nothing has been heard for too long, of none of its namespaces."""
        return all(self.cache.age_in(namespace) > STALE_SECONDS for namespace in self._watches)

    def unread(self) -> dict[str, str]:
        """Of several namespaces those that cannot be read, and why; empty for one alone, or for all as one."""
        if len(self._watches) == 1:
            return {}
        found = {}
        for namespace, watch in self._watches.items():
            age_seconds = self.cache.age_in(namespace)
            if watch.is_refused or not self.cache.has_read(namespace):
                found[namespace] = f"{self._plural} cannot be read: {watch.trouble or 'they are being read'}"
            elif age_seconds > STALE_SECONDS:
                found[namespace] = f"nothing was heard of {self._plural} for {age_seconds:.0f} s"
        return found


def unread_in(followings: Iterable[Following[object]]) -> dict[str, str]:
    """Namespaces in which one of these cannot be read, and why, in a line."""
    found: dict[str, str] = {}
    for following in followings:
        found = {**following.unread(), **found}
    return found
