"""A cache of one resource's objects: what is kept of each, by namespace and name, and how fresh that is.

Only a part of each object is kept: 10,000 pods as decoded JSON take gigabytes, what an agent needs of them some ten
megabytes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cluster_agent.kubernetes.resources import Json
from foundation.clocks import Clock

Kept = TypeVar("Kept")
_REMEMBERED_ENDS = 10_000
"""Objects that are gone: of news that come late, or twice, it is known that they are old."""
Key = tuple[str, str]
"""Namespace, which is empty where there is none, and name."""


@dataclass(frozen=True, slots=True)
class CacheEntry(Generic[Kept]):
    """What is kept of an object, and which state of which object that was."""

    uid: str
    version: str
    kept: Kept


@dataclass(frozen=True, slots=True)
class ObjectHead:
    """The part of an object's metadata by which it is told from others."""

    key: Key
    uid: str
    version: str


def head_of(found: Json) -> ObjectHead:
    """The metadata of an object of a list or an event.

    Raises:
        ValueError: it has no name or no version, as no server would send it.
    """
    metadata = found.get("metadata")
    if not isinstance(metadata, dict):
        raise ValueError("an object without metadata")  # noqa: TRY004 — input, and no argument
    name, version = metadata.get("name"), metadata.get("resourceVersion")
    if not (isinstance(name, str) and name and isinstance(version, str) and version):
        raise ValueError("an object without a name or a resourceVersion")
    return ObjectHead((str(metadata.get("namespace") or ""), name), str(metadata.get("uid") or ""), version)


def is_older(version: str, other: str) -> bool:
    """Whether a resourceVersion is surely before another; they are numbers, unless a server has it otherwise."""
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)


class Cache(Generic[Kept]):
    """Read by any thread; written by the one that follows the resource.

    Args:
        keep: what to keep of an object; None where it is of no interest.
        on_change: called after every change, by the thread that follows.
        namespaces: each is read and followed by itself; an empty name stands for all there are.

    Raises:
        ValueError: there are no namespaces, so that everything would have been read from the start.
    """

    def __init__(
        self,
        keep: Callable[[Json], Kept | None],
        clock: Clock,
        on_change: Callable[[], None],
        namespaces: Sequence[str] = ("",),
    ) -> None:
        if not namespaces or isinstance(namespaces, str):
            raise ValueError(f"namespaces of a cache: at least one name in a sequence, not {namespaces!r}")
        self._keep, self._clock, self._on_change = keep, clock, on_change
        self._lock = threading.Lock()
        self._entries: dict[Key, CacheEntry[Kept]] = {}
        self._gone: OrderedDict[str, str] = OrderedDict()
        """By uid, the version of the end; empty where an object was missing from all that was read."""
        self._unlisted = set(namespaces)
        self._listed = threading.Event()
        self._heard_at = dict.fromkeys(namespaces, -float("inf"))

    @property
    def is_synced(self) -> bool:
        """Whether everything was read once; before that, what is here is of no use."""
        return self._listed.is_set()

    def wait_synced(self, timeout_seconds: float) -> bool:
        """Wait until everything was read once; whether it was."""
        return self._listed.wait(timeout_seconds)

    def has_read(self, namespace: str) -> bool:
        """Whether everything of a namespace was read once."""
        with self._lock:
            return namespace not in self._unlisted if namespace in self._heard_at else not self._unlisted

    @property
    def age_seconds(self) -> float:
        """Since the server was last heard of, of the namespace where that is longest ago; at first infinite."""
        return self._clock() - min(self._heard_at.values())

    def age_in(self, namespace: str) -> float:
        """Seconds since the server was last heard of a namespace that is followed by itself."""
        return self._clock() - self._heard_at[namespace]

    def heard(self, namespace: str = "") -> None:
        """Note that the server says what it has: a bookmark, an event."""
        self._heard_at[namespace] = self._clock()

    def entries(self) -> Mapping[Key, CacheEntry[Kept]]:
        """All objects as they stand now, in a copy."""
        with self._lock:
            return dict(self._entries)

    def get(self, key: Key) -> CacheEntry[Kept] | None:
        """One object; None if there is none, or none that is kept."""
        with self._lock:
            return self._entries.get(key)

    def entry_of(self, found: Json) -> tuple[Key, CacheEntry[Kept] | None]:
        """The entry that an object would have; None where nothing of it is kept."""
        head, kept = head_of(found), self._keep(found)
        return head.key, None if kept is None else CacheEntry(head.uid, head.version, kept)

    def replace(self, entries: dict[Key, CacheEntry[Kept]], namespace: str = "") -> None:
        """Have these objects and no others of a namespace: everything there was read anew."""
        with self._lock:
            others = {key: entry for key, entry in self._entries.items() if namespace and key[0] != namespace}
            before = {key: entry for key, entry in self._entries.items() if key not in others}
            changed = {key: _meaning(entry) for key, entry in before.items()} != {
                key: _meaning(entry) for key, entry in entries.items()
            }
            for uid in {entry.uid for entry in before.values()} - {entry.uid for entry in entries.values()}:
                self._end(uid, "")
            self._entries = {**others, **entries}
            first = namespace in self._unlisted
            self._unlisted.discard(namespace)
        self.heard(namespace)
        if not self._unlisted:
            self._listed.set()
        if changed or first:
            self._on_change()

    def put(self, found: Json) -> None:
        """Take an object that was added or has changed; one that is older than what is here is passed over."""
        self._put(found, is_news=True)

    def put_answer(self, found: Json) -> None:
        """Take the answer to a write; not where it was slower than the news that the object is gone."""
        self._put(found, is_news=False)

    def remove(self, found: Json) -> None:
        """Forget a deleted object; not one that was made since under its name, or that came back into a selection."""
        head = head_of(found)
        with self._lock:
            self._end(head.uid, head.version)
            present = self._entries.get(head.key)
            if present is None or is_older(head.version, present.version):
                return
            del self._entries[head.key]
        self._on_change()

    def forget(self, key: Key, uid: str) -> None:
        """Forget an object that the server has told is gone, whatever version it was last seen in."""
        with self._lock:
            present = self._entries.get(key)
            if present is None or present.uid != uid:
                return
            self._end(uid, present.version)
            del self._entries[key]
        self._on_change()

    def _put(self, found: Json, *, is_news: bool) -> None:
        key, entry = self.entry_of(found)
        head = head_of(found)
        with self._lock:
            present = self._entries.get(key)
            if present is not None and (is_older(head.version, present.version) or head.version == present.version):
                return
            ended = self._gone.get(head.uid)
            # What is no number is compared by nobody: a watch is believed, an answer may be of before.
            is_doubted = not is_news or ended == head.version or is_older(head.version, ended or "")
            if ended is not None and is_doubted and not is_older(ended, head.version):
                return
            if entry is None:
                self._end(head.uid, head.version)
                self._entries.pop(key, None)
            else:
                self._gone.pop(head.uid, None)  # one that left a selection comes back into it
                self._entries[key] = entry
        # A node's heartbeat is a new version, of which nothing new is kept.
        if _meaning(present) != _meaning(entry):
            self._on_change()

    def _end(self, uid: str, version: str) -> None:
        if uid:
            before = self._gone.pop(uid, "")
            self._gone[uid] = before if is_older(version, before) else version
            if len(self._gone) > _REMEMBERED_ENDS:
                self._gone.popitem(last=False)


def _meaning(entry: CacheEntry[Kept] | None) -> tuple[str, Kept] | None:
    return None if entry is None else (entry.uid, entry.kept)
