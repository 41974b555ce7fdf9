"""Watches: what changes after a version, with bookmarks, and with what a test makes go wrong."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from apiserver.asked import Fault
from apiserver.registry import Served
from apiserver.selection import Matches, selected
from apiserver.store import Change, Refused, Store, expired

Json = dict[str, Any]
_LONGEST_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """How this server watches.

    Attributes:
        expired_as_http: whether a version that is too old gets an answer of 410, and not an event in the stream.
    """

    bookmark_seconds: float
    offers_watch_list: bool
    expired_as_http: bool


class Watches:
    """All watches that are open."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queues: set[asyncio.Queue[Change | None]] = set()

    def tell(self, change: Change) -> None:
        for queue in self._queues:
            queue.put_nowait(change)

    def close(self) -> None:
        """End all watches, as a server that restarts does."""
        for queue in self._queues:
            queue.put_nowait(None)

    async def answer(
        self,
        request: web.Request,
        served: Served,
        namespace: str,
        fault: Fault,
        options: WatchOptions,
        shown: Callable[[Json], Json],
    ) -> web.StreamResponse:
        """Watch until the client, the time or the server ends it.

        Args:
            shown: what is sent of an object.
        """
        query = request.query
        matches = selected(served.plural, query.get("labelSelector", ""), query.get("fieldSelector", ""), served.fields)
        stated = query.get("resourceVersion", "")
        initial = query.get("sendInitialEvents") == "true"
        if initial and not options.offers_watch_list:
            why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
            raise Refused(422, "Invalid", f"sendInitialEvents: Forbidden: {why}")
        since = int(stated) if stated.isdigit() and stated != "0" else 0
        too_old = since and not initial and since < self._store.compacted
        if too_old and options.expired_as_http:
            raise expired(since, self._store.compacted)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        # From here on no change is missed: it waits in the queue.
        queue: asyncio.Queue[Change | None] = asyncio.Queue()
        self._queues.add(queue)
        try:
            await response.prepare(request)
            if fault.watch == "close":
                return response
            if fault.watch == "silent":
                await asyncio.sleep(3600)
            if too_old:
                await _send(response, "ERROR", expired(since, self._store.compacted).status)
                return response
            watch = _Watch(self._store, response, served.table, namespace, matches, fault, shown)
            ends_at = time.monotonic() + (float(query.get("timeoutSeconds") or 0) or _LONGEST_SECONDS)
            await watch.begin(since, initial)
            bookmarks = query.get("allowWatchBookmarks") == "true"
            await watch.follow(queue, ends_at, options.bookmark_seconds if bookmarks else None)
        except (ConnectionResetError, _Cut):
            pass
        finally:
            self._queues.discard(queue)
        return response


class _Cut(Exception):
    """The connection was ended on purpose."""


class _Watch:
    def __init__(
        self,
        store: Store,
        response: web.StreamResponse,
        table: str,
        namespace: str,
        matches: Matches,
        fault: Fault,
        shown: Callable[[Json], Json],
    ) -> None:
        self._store, self._response, self._table, self._fault = store, response, table, fault
        self._namespace, self._matches, self._shown = namespace, matches, shown
        self._reported = 0
        self._held: tuple[str, Json] | None = None

    async def begin(self, since: int, initial: bool) -> None:
        if initial or not since:
            self._reported = self._store.version
            for found in list(self._store.all(self._table, self._namespace)):
                if self._matches(found):
                    await self._send("ADDED", found)
            if initial:
                await self._bookmark({"k8s.io/initial-events-end": "true"})
            return
        self._reported = since
        for change in list(self._store.changes_after(since)):
            await self._show(change)

    async def follow(self, queue: asyncio.Queue[Change | None], ends_at: float, bookmark_seconds: float | None) -> None:
        bookmark_at = float("inf") if bookmark_seconds is None else time.monotonic() + bookmark_seconds
        getting = asyncio.ensure_future(queue.get())
        try:
            while True:
                await asyncio.wait({getting}, timeout=max(0.0, min(ends_at, bookmark_at) - time.monotonic()))
                if getting.done():
                    change = getting.result()
                    if change is None:
                        return
                    getting = asyncio.ensure_future(queue.get())
                    await self._show(change)
                elif not queue.empty():
                    continue  # it came this instant: a bookmark now would be of after it, and it would never be shown
                elif time.monotonic() >= ends_at:
                    return
                else:
                    # A store that was set back is behind what this watch began from: it knows nothing of its version.
                    if self._reported <= self._store.version:
                        self._reported = self._store.version
                        await self._bookmark({})
                    bookmark_at = time.monotonic() + (bookmark_seconds or 0.0)
        finally:
            getting.cancel()

    async def _show(self, change: Change) -> None:
        if change.plural != self._table or change.version <= self._reported:
            return
        self._reported = change.version
        was, now = self._is_shown(change.before), self._is_shown(change.after)
        if now:
            await self._send_or_hold("MODIFIED" if was else "ADDED", change.seen)
        elif was:
            await self._send_or_hold("DELETED", change.gone)

    async def _send_or_hold(self, kind: str, found: Json) -> None:
        if self._fault.watch == "swapped" and self._held is None:
            self._held = kind, found
            return
        await self._send(kind, found)
        await self._send_held()

    async def _send_held(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            await self._send(*held)

    def _is_shown(self, found: Json | None) -> bool:
        if found is None or (self._namespace and found["metadata"].get("namespace") != self._namespace):
            return False
        return self._matches(found)

    async def _bookmark(self, annotations: dict[str, str]) -> None:
        await self._send_held()
        metadata: Json = {"resourceVersion": str(self._reported)}
        if annotations:
            metadata["annotations"] = annotations
        await self._send("BOOKMARK", {"metadata": metadata})

    async def _send(self, kind: str, found: Json) -> None:
        shown = self._shown(found)
        if self._fault.watch == "half":
            line = json.dumps({"type": kind, "object": shown}).encode()
            await self._response.write(line[: len(line) // 2])
            raise _Cut
        for _ in range(2 if self._fault.watch == "twice" else 1):
            await _send(self._response, kind, shown)


async def _send(response: web.StreamResponse, kind: str, found: Json) -> None:
    await response.write(json.dumps({"type": kind, "object": found}).encode() + b"\n")
