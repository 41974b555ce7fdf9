"""Changes of size, written: each on exactly the object that it was decided about, or not at all.

A patch carries the uid and the resourceVersion that were seen, so that what somebody changed meanwhile is never
overwritten. Where no answer came the object is read once more; while it is not known whether the patch still comes to
pass, the job counts as having the larger of both sizes, until the object's next version refuses the patch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import structlog

from cluster_agent.backends.kubernetes.limits import ANNOTATION
from cluster_agent.backends.kubernetes.sizing import SizeChange
from cluster_agent.kubernetes.api_server import ApiServer, ContentType
from cluster_agent.kubernetes.cache import Cache, CacheEntry, is_older
from cluster_agent.kubernetes.errors import ApiError, ApiUnanswered, Conflict, NotActing, NotFound
from cluster_agent.kubernetes.resources import JOBS, Json
from cluster_agent.kubernetes.targets import ElasticTarget, TargetFacts, job_facts, resized
from foundation.clocks import Clock
from foundation.text import plain_line

_log = structlog.get_logger()

_MOST_FAILURES = 3
_ADVICE_SECONDS = 300.0
"""After some failures in a row a job is left alone for so long: a webhook or a quota is not mended within a minute. No
longer than a slot: two decisions after the end of a trouble all is as decided.
"""
_DOUBT_SECONDS = 90.0
"""A server ends a request after a minute."""


class Written(StrEnum):
    """What came of a change."""

    SET = "set"
    CONFLICT = "conflict"
    GONE = "gone"
    FAILED = "failed"
    NOT_NOW = "not-now"


@dataclass(frozen=True, slots=True)
class _SizeRequest:
    """A patch that was sent: from which version, to how many workers, and the version that it made; "" if unknown."""

    seen: str
    workers: int
    made: str
    until_seconds: float


@dataclass(slots=True)
class _Failures:
    """In a row; forgotten after a while without another."""

    count: int = 0
    line: str = ""
    until_seconds: float = 0.0


class SizeWriter:
    """Writes sizes, and remembers what is not seen yet and what failed; used by one thread.

    Args:
        may_write: asked before each write.
    """

    def __init__(
        self,
        store: ApiServer,
        jobs: Cache[TargetFacts],
        clock: Clock,
        may_write: Callable[[], bool],
        on_written: Callable[[Written], None] = lambda _: None,
    ) -> None:
        self._store, self._jobs = store, jobs
        self._clock, self._may_write, self._on_written = clock, may_write, on_written
        self._requests: dict[str, _SizeRequest] = {}
        self._failures: dict[str, _Failures] = {}

    def counted_workers(self, target: ElasticTarget) -> int:
        """Workers that a target's object has or may have, as far as is known now; 0 where there is none."""
        entry = self._entry(target)
        if entry is None:
            return 0
        request = self._not_seen_yet(entry)
        if request is None:
            return entry.kept.workers
        return request.workers if request.made else max(request.workers, entry.kept.workers)

    def has_seen_all(self, target: ElasticTarget) -> bool:
        """Whether what is seen of a target's object is all that was asked of it."""
        entry = self._entry(target)
        return entry is None or self._not_seen_yet(entry) is None

    def failing(self) -> dict[str, str]:
        """Why changes are given up for now, by the uid of the object; it ends by itself."""
        now = self._clock()
        self._failures = {uid: each for uid, each in self._failures.items() if now < each.until_seconds}
        return {uid: each.line for uid, each in self._failures.items() if each.count >= _MOST_FAILURES}

    def forget(self, uids: frozenset[str]) -> None:
        """Forget all objects but these."""
        self._requests = {uid: each for uid, each in self._requests.items() if uid in uids}
        self._failures = {uid: each for uid, each in self._failures.items() if uid in uids}

    def set(self, change: SizeChange, note: str = "") -> tuple[Written, str]:
        """Give a job its size, and a note in its annotation; what came of it, and a line where it is not set."""
        written, line = self._set(change, note)
        self._on_written(written)
        return written, line

    def _set(self, change: SizeChange, note: str) -> tuple[Written, str]:
        entry = self._entry(change.member.target)
        if entry is None or entry.uid != change.member.facts.uid:
            return Written.GONE, "it is not there any more"
        if not self._is_as_decided(entry, change):
            return Written.CONFLICT, "it has changed since the decision: the next one counts"
        if not self._may_write():
            return Written.NOT_NOW, "another agent acts now"
        return self._try(entry, change, note)

    def _try(self, entry: CacheEntry[TargetFacts], change: SizeChange, note: str) -> tuple[Written, str]:
        try:
            self._patch(entry, change, note)
        except (Conflict, NotFound):
            return Written.CONFLICT, "it was changed or deleted at the same moment: the next decision counts"
        except NotActing:
            return Written.NOT_NOW, "another agent acts now"
        except ApiError as error:
            line = plain_line(str(error))
            if isinstance(error, ApiUnanswered) and not error.may_have_happened:
                return Written.NOT_NOW, line  # the server is busy, or there are no credentials: not the job's fault
            return Written.FAILED, self._fail(entry.uid, line)
        self._failures.pop(entry.uid, None)
        return Written.SET, ""

    def _is_as_decided(self, entry: CacheEntry[TargetFacts], change: SizeChange) -> bool:
        now = entry.kept
        same = now.workers == change.before and not (now.delay or now.obstacle or now.is_over)
        return same and self._not_seen_yet(entry) is None

    def _patch(self, entry: CacheEntry[TargetFacts], change: SizeChange, note: str) -> None:
        target = change.member.target
        path = JOBS.path(target.namespace, target.ref.name)
        metadata: Json = {"uid": entry.uid, "resourceVersion": entry.version}
        if note:
            metadata["annotations"] = {ANNOTATION: note}
        body = {"metadata": metadata, **resized(entry.kept, change.after)}
        try:
            made = _version_of(self._store.patch(path, body, ContentType.MERGE_PATCH))
        except ApiUnanswered as error:
            if not error.may_have_happened:
                raise
            self._note(entry, change, "")
            if not self._came_to_pass(path, entry, change):
                raise
        else:
            self._note(entry, change, made)

    def _entry(self, target: ElasticTarget) -> CacheEntry[TargetFacts] | None:
        return self._jobs.get((target.namespace, target.ref.name))

    def _note(self, entry: CacheEntry[TargetFacts], change: SizeChange, made: str) -> None:
        self._requests[entry.uid] = _SizeRequest(entry.version, change.after, made, self._clock() + _DOUBT_SECONDS)

    def _not_seen_yet(self, entry: CacheEntry[TargetFacts]) -> _SizeRequest | None:
        """What was asked of an object and is not in the cache; None where the cache has all there will be."""
        request = self._requests.get(entry.uid)
        if request is None:
            return None
        if request.made:
            is_behind = is_older(entry.version, request.made)
        else:
            is_behind = entry.version == request.seen and self._clock() < request.until_seconds
        if is_behind:
            return request
        del self._requests[entry.uid]
        return None

    def _came_to_pass(self, path: str, entry: CacheEntry[TargetFacts], change: SizeChange) -> bool:
        """Look whether a patch was carried out of which no answer came."""
        try:
            found = self._store.get(path)
        except ApiError as error:
            _log.warning("change-in-doubt", object=path, error=plain_line(str(error)))
            return False
        version = _version_of(found)
        if (found.get("metadata") or {}).get("uid") != entry.uid or version == entry.version:
            return False
        self._note(entry, change, version)
        if job_facts(found).workers != change.after:
            # Somebody else was first, so that the patch can no longer be carried out.
            del self._requests[entry.uid]
            return False
        return True

    def _fail(self, uid: str, line: str) -> str:
        found = self._failures.setdefault(uid, _Failures())
        found.count, found.line, found.until_seconds = found.count + 1, line, self._clock() + _ADVICE_SECONDS
        if found.count >= _MOST_FAILURES:
            minutes = _ADVICE_SECONDS / 60
            found.line = f"{found.count} changes failed, so there is only advice for {minutes:.0f} minutes: {line}"
        return found.line


def _version_of(found: dict[str, Any]) -> str:
    return str((found.get("metadata") or {}).get("resourceVersion") or "")
