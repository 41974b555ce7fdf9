"""List and watch: keeps a cache equal to what the server has, through everything that servers and networks do.

A list, or a watch that begins with all objects where the server offers it, gives a state and its resourceVersion; a
watch gives the changes from there. The client's own informer is not used: it asks 22 times a second of a server that
answers 500, and 1,554 times of one that closes each watch at once (docs/decisions/0051). Here every failure is waited
for, longer each time, and forgotten only when a watch has told something or held for a while.

What makes it read everything anew: 410, as an answer or as an event; an object that makes no sense; and a watch that
stays silent for longer than bookmarks are apart, since a server whose store was set back accepts a watch from a version
of its future and never says a word.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import structlog

from cluster_agent.kubernetes.api_server import ApiServer, Query, WatchStream
from cluster_agent.kubernetes.cache import Cache, CacheEntry, Key, head_of, is_older
from cluster_agent.kubernetes.errors import ApiError, Expired, Forbidden, Invalid, WatchSilent, error_of
from cluster_agent.kubernetes.resources import Json, Resource
from foundation.backoff import Backoff
from foundation.clocks import Clock
from foundation.text import plain_line

_log = structlog.get_logger()

Kept = TypeVar("Kept")
PAGE_OBJECTS = 500
STALE_SECONDS = 180.0
"""What was heard longer ago is nothing to decide by; bookmarks come every minute."""
SILENCE_SECONDS = 90.0
"""Servers send a bookmark about every minute."""
_WATCH_SECONDS = 290
"""After this a server closes a watch in good order, and the next goes on from there."""
_STEADY_SECONDS = 5.0
"""A watch that held so long was one, even if nothing happened."""
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.5, 30.0
_END_OF_INITIAL_EVENTS = "k8s.io/initial-events-end"


def own_seed() -> str:
    """Seed of waits in which the processes of agents differ."""
    return f"{socket.gethostname()}/{os.getpid()}"


class ListWatch(Generic[Kept]):
    """Keeps one cache; `step` does the next thing, and is called by one thread.

    Args:
        namespace: whose objects; everybody's where empty. The cache has it among its own.
        selectors: `labelSelector`, `fieldSelector`.
        seed: of the waits; this process's own unless given.
    """

    def __init__(
        self,
        source: ApiServer,
        resource: Resource,
        cache: Cache[Kept],
        clock: Clock,
        namespace: str = "",
        selectors: Query | None = None,
        seed: str = "",
    ) -> None:
        self._source, self._cache, self._clock = source, cache, clock
        self._what = resource.plural
        self._path, self._namespace = resource.path(namespace), namespace
        self._selectors = dict(selectors or {})
        self._backoff = Backoff(f"{seed or own_seed()}/{self._path}", _FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS)
        self._version = ""
        self._reported = False
        self._trouble = ""
        self._is_refused = False
        self._offers_watch_list = True
        self._lock = threading.Lock()
        self._stream: WatchStream | None = None
        self._stopped = False

    @property
    def trouble(self) -> str:
        """What went wrong last, in a line; empty where all is well."""
        return self._trouble

    @property
    def is_refused(self) -> bool:
        """Whether it was last answered that this may not be read."""
        return bool(self._trouble) and self._is_refused

    def step(self) -> float:
        """Read everything, or follow a watch to its end; the seconds to wait before the next step."""
        began, self._reported = self._clock(), False
        try:
            if self._version:
                self._follow({"resourceVersion": self._version}, None)
            elif self._offers_watch_list:
                self._watch_list()
            else:
                self._list()
                return 0.0
        except Expired as error:
            self._version = ""
            self._say("expired", error)
        except WatchSilent as error:
            self._version = ""
            self._say("silent", error)
        except ApiError as error:
            self._say("failed", error)
        except ValueError as error:
            self._version = ""
            self._say("senseless", error)
        if self._reported or self._clock() - began >= _STEADY_SECONDS:
            self._backoff.reset()
            self._trouble = ""
        return self._backoff.next_seconds()

    def run(self, wait: Callable[[float], bool]) -> None:
        """Follow until `wait`, which waits so many seconds, says True."""
        while not self._stopped:
            try:
                seconds = self.step()
            except Exception:
                # An object that what keeps it was not made for: it must not end the following of all others.
                _log.exception("kubernetes-watch-fault", resource=self._what)
                self._version, self._trouble = "", "a fault of this program; see its log"
                seconds = self._backoff.next_seconds()
            if wait(seconds):
                return

    def stop(self) -> None:
        """End a watch that is being followed; from any thread."""
        with self._lock:
            self._stopped = True
            if self._stream is not None:
                self._stream.shutdown()

    def _list(self) -> None:
        """Read page by page; a token that has run out midway begins anew, in the next step."""
        entries: dict[Key, CacheEntry[Kept]] = {}
        query: dict[str, str | int] = {**self._selectors, "limit": PAGE_OBJECTS}
        while True:
            page = self._source.get(self._path, query)
            items, metadata = page.get("items"), page.get("metadata")
            if not isinstance(metadata, dict) or not isinstance(items, list | None):
                raise ValueError("a list without metadata or items")  # noqa: TRY004 — input
            for item in items or ():
                key, entry = self._cache.entry_of(item)
                if entry is not None:
                    entries[key] = entry
            self._cache.heard(self._namespace)
            if not metadata.get("continue"):
                break
            query["continue"] = str(metadata["continue"])
        self._version = str(metadata.get("resourceVersion") or "")
        if not self._version:
            raise ValueError("a list without a resourceVersion")
        self._cache.replace(entries, self._namespace)
        self._trouble = ""

    def _watch_list(self) -> None:
        query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        try:
            self._follow(query, {})
        except Invalid:
            # A server of before 1.32, or one where the feature is off.
            self._offers_watch_list = False

    def _follow(self, query: Query, initial: dict[Key, CacheEntry[Kept]] | None) -> None:
        """Take events until the watch ends; `initial` collects the objects that a watch may begin with."""
        parameters = {**self._selectors, **query, "allowWatchBookmarks": "true", "timeoutSeconds": _WATCH_SECONDS}
        with self._source.watch(self._path, parameters, SILENCE_SECONDS) as stream:
            with self._lock:
                self._stream = stream
                if self._stopped:
                    return
            try:
                for event in stream:
                    initial = self._take(event, initial)
            finally:
                with self._lock:
                    self._stream = None

    def _take(self, event: Json, initial: dict[Key, CacheEntry[Kept]] | None) -> dict[Key, CacheEntry[Kept]] | None:
        kind, found = event.get("type"), event["object"]
        if kind == "ERROR":
            code = found.get("code")
            raise error_of(code if isinstance(code, int) else 500, found, f"watch of {self._path}")
        if kind == "BOOKMARK":
            metadata = found.get("metadata") or {}
            version = str(metadata.get("resourceVersion") or "")
            if initial is not None:
                if (metadata.get("annotations") or {}).get(_END_OF_INITIAL_EVENTS) != "true":
                    return initial
                self._cache.replace(initial, self._namespace)
            self._version = version
            self._on_reported()
            return None
        if initial is not None:
            key, entry = self._cache.entry_of(found)
            if kind == "DELETED" or entry is None:
                initial.pop(key, None)
            else:
                initial[key] = entry
            return initial
        if kind in ("ADDED", "MODIFIED"):
            self._cache.put(found)
        elif kind == "DELETED":
            self._cache.remove(found)
        else:
            raise ValueError(f"an event of type {kind!r}")
        version = head_of(found).version
        # An event may come twice, or after a later one.
        self._version = self._version if is_older(version, self._version) else version
        self._on_reported()
        return None

    def _on_reported(self) -> None:
        self._reported, self._trouble = True, ""
        self._cache.heard(self._namespace)

    def _say(self, what: str, error: Exception) -> None:
        """Log a failure; the same one over and over is logged once."""
        line = plain_line(str(error))
        self._is_refused = isinstance(error, Forbidden)
        if not self._stopped and line != self._trouble:
            _log.warning("kubernetes-watch", resource=self._what, what=what, error=line)
        self._trouble = line


class Following(Generic[Kept]):
    """A cache of a resource's objects, each namespace listed and watched by itself.

    Whoever has rights in some namespaces only may not list those of all. What goes wrong in one of them, such as a
    right that is missing, is told of that one, and the others are followed on.

    Args:
        keep: what to keep of an object; None where it is of no interest.
        on_change: called after every change, by the thread that follows.
        namespaces: to follow; an empty name stands for all there are.
        selectors: `labelSelector`, `fieldSelector`.
    """

    def __init__(
        self,
        source: ApiServer,
        resource: Resource,
        keep: Callable[[Json], Kept | None],
        clock: Clock,
        on_change: Callable[[], None],
        namespaces: Sequence[str] = ("",),
        selectors: Query | None = None,
    ) -> None:
        self._plural = resource.plural
        self.cache: Cache[Kept] = Cache(keep, clock, on_change, namespaces)
        self._watches = {
            namespace: ListWatch(source, resource, self.cache, clock, namespace, selectors) for namespace in namespaces
        }

    def threads(self, wait: Callable[[float], bool]) -> list[threading.Thread]:
        """Those that follow, not started yet, until `wait`, which waits so many seconds, says True."""
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
    def has_read(self) -> bool:
        """Whether everything was read once, but for namespaces of several that cannot be read."""
        read = [self.cache.has_read(namespace) for namespace in self._watches]
        tried = [bool(watch.trouble) for watch in self._watches.values()]
        return all(read) or (any(read) and all(each or failed for each, failed in zip(read, tried, strict=True)))

    @property
    def is_stale(self) -> bool:
        """Whether nothing has been heard for too long, of none of its namespaces."""
        return all(self.cache.age_in(namespace) > STALE_SECONDS for namespace in self._watches)

    def unread(self) -> dict[str, str]:
        """Namespaces of several that cannot be read, or no longer, and why.

        Of one alone, or of all as one, there is nothing besides that could be gone on with.
        """
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
