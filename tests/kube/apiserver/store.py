"""Store of the test API server: objects with one rising resourceVersion, and their history until it is compacted.

Faithful to a real server where clients can tell: what raises a version or a generation and what does not, which writes
conflict, how deletion waits for finalizers, what a continued list and a watch from an old or a future version get.
"""

from __future__ import annotations

import itertools
import random
import string
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]
Key = tuple[str, str]
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SYSTEM = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")


class Refused(Exception):
    """A Status to answer with."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
            **({"details": details} if details else {}),
        }


@dataclass(frozen=True, slots=True)
class Change:
    """One write; `before` is None where an object was made, `after` where it is gone."""

    version: int
    plural: str
    before: Json | None
    after: Json | None

    @property
    def seen(self) -> Json:
        """The object as a watch shows it: one that is gone as it last was, with the version of its end."""
        return self.after if self.after is not None else self.gone

    @property
    def gone(self) -> Json:
        """The object as it was before, with this change's version."""
        assert self.before is not None
        return {**self.before, "metadata": {**self.before["metadata"], "resourceVersion": str(self.version)}}


class Store:
    """All objects of a server, by resource (`pods`, `jobs.batch`); used by one thread.

    Args:
        wall_clock: Unix seconds.
        seed: of uids and generated names.
    """

    def __init__(self, wall_clock: Callable[[], float], seed: int = 0) -> None:
        self._wall_clock, self._random = wall_clock, random.Random(seed)
        self.version = 1000
        self.compacted = 1000
        self.objects: dict[str, dict[Key, Json]] = {}
        self.kept_changes = 200_000
        """Longest history; what is older is compacted."""
        self.history: deque[Change] = deque()
        self.on_change: list[Callable[[Change], None]] = []
        self.on_create: list[Callable[[str, Json], None]] = []
        """Complete an object that is made, in place, or refuse it."""

    def reseed(self, seed: int) -> None:
        """Draw uids and generated names from another seed from now on."""
        self._random = random.Random(seed)

    def seconds(self) -> float:
        """The time, in Unix seconds."""
        return self._wall_clock()

    def now(self) -> str:
        return datetime.fromtimestamp(self._wall_clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def get(self, plural: str, namespace: str, name: str) -> Json:
        found = self.objects.get(plural, {}).get((namespace, name))
        if found is None:
            raise not_found(plural, name)
        return found

    def all(self, plural: str, namespace: str = "") -> Iterator[Json]:
        """In the order of namespace and name, as etcd has them."""
        table = self.objects.get(plural, {})
        return (table[key] for key in sorted(table) if not namespace or key[0] == namespace)

    def at(self, plural: str, version: int) -> dict[Key, Json]:
        """The objects as they were at a version.

        Raises:
            Refused: 410, it is no longer kept.
        """
        if version < self.compacted:
            raise expired(version, self.compacted)
        table = dict(self.objects.get(plural, {}))
        for change in reversed(self.history):
            if change.version <= version:
                break
            if change.plural != plural:
                continue
            if change.before is None:
                assert change.after is not None
                table.pop(key_of(change.after))
            else:
                table[key_of(change.before)] = change.before
        return table

    def create(self, plural: str, found: Json, *, dry_run: bool = False) -> Json:
        """Take an object as new."""
        found = copied(found)
        metadata = found.setdefault("metadata", {})
        for name in (*_SYSTEM, "resourceVersion"):
            metadata.pop(name, None)
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                raise Refused(
                    422, "Invalid", f"{plural}: metadata.name: Required value: name or generateName is required"
                )
            metadata["name"] = metadata["generateName"] + "".join(self._random.choices(_LETTERS, k=5))
        key = key_of(found)
        if key in self.objects.get(plural, {}):
            raise Refused(409, "AlreadyExists", f'{plural} "{key[1]}" already exists', {"name": key[1], "kind": plural})
        metadata["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        metadata["creationTimestamp"] = self.now()
        metadata["generation"] = 1
        for complete in self.on_create:
            complete(plural, found)
        return found if dry_run else self._write(plural, None, found)

    def replace(
        self, plural: str, namespace: str, name: str, found: Json, part: str = "", *, dry_run: bool = False
    ) -> Json:
        """Take an object in another's place.

        Args:
            part: "status" where only that is written; else all but the status is.
        """
        before = self.get(plural, namespace, name)
        after: Json = copied(found)
        metadata, was = after.setdefault("metadata", {}), before["metadata"]
        for what in ("resourceVersion", "uid"):
            if metadata.get(what) and metadata[what] != was[what]:
                raise conflict(plural, name, what, was[what], metadata[what])
        if part == "status":
            after = {**copied(before), "status": after.get("status", {})}
        elif "status" in before or "status" in after:
            after.pop("status", None)
            if "status" in before:
                after["status"] = copied(before["status"])
        metadata = after.setdefault("metadata", {})
        for what in _SYSTEM:
            metadata.pop(what, None)
            if what in was:
                metadata[what] = was[what]
        metadata["name"], metadata["resourceVersion"] = was["name"], was["resourceVersion"]
        if "namespace" in was:
            metadata["namespace"] = was["namespace"]
        if part != "status" and _intent(after) != _intent(before):
            metadata["generation"] = was.get("generation", 1) + 1
        if after == before or dry_run:
            return after
        if "deletionTimestamp" in metadata and not metadata.get("finalizers") and not _is_graceful(plural, after):
            return self._write(plural, before, None)
        return self._write(plural, before, after)

    def delete(self, plural: str, namespace: str, name: str, options: Json, *, dry_run: bool = False) -> Json:
        """Delete an object, or mark it where it waits for finalizers, or for a kubelet."""
        before = self.get(plural, namespace, name)
        was = before["metadata"]
        for what, stated in (options.get("preconditions") or {}).items():
            if stated and stated != was[what]:
                raise conflict(plural, name, what, was[what], stated)
        grace = options.get("gracePeriodSeconds")
        if grace is None:
            grace = (before.get("spec") or {}).get("terminationGracePeriodSeconds", 30) if plural == "pods" else 0
        finalizers = list(was.get("finalizers", ()))
        if options.get("propagationPolicy") == "Foreground" and "foregroundDeletion" not in finalizers:
            finalizers.append("foregroundDeletion")
        if options.get("propagationPolicy") == "Orphan" and "orphan" not in finalizers:
            finalizers.append("orphan")
        waits_for_kubelet = plural == "pods" and grace > 0 and _is_graceful(plural, before)
        if not finalizers and not waits_for_kubelet:
            return before if dry_run else self._write(plural, before, None)
        after = copied(before)
        if "deletionTimestamp" not in was:
            after["metadata"]["deletionTimestamp"] = self.now()
        after["metadata"]["deletionGracePeriodSeconds"] = grace
        if finalizers:
            after["metadata"]["finalizers"] = finalizers
        return after if dry_run or after == before else self._write(plural, before, after)

    def compact(self) -> None:
        """Forget the history: watches and lists of before get 410."""
        self.history.clear()
        self.compacted = self.version

    def set_back(self, versions: int) -> None:
        """Have an older store, as after a restored backup, of which clients know nothing."""
        target = self.version - versions
        plurals = set(self.objects)
        self.objects = {plural: self.at(plural, target) for plural in plurals}
        while self.history and self.history[-1].version > target:
            self.history.pop()
        self.version = target

    def _write(self, plural: str, before: Json | None, after: Json | None) -> Json:
        self.version += 1
        table = self.objects.setdefault(plural, {})
        if after is None:
            assert before is not None
            del table[key_of(before)]
            change = Change(self.version, plural, before, None)
        else:
            after["metadata"]["resourceVersion"] = str(self.version)
            table[key_of(after)] = after
            change = Change(self.version, plural, before, after)
        self.history.append(change)
        if len(self.history) > self.kept_changes:
            self.compacted = self.history.popleft().version
        for tell in self.on_change:
            tell(change)
        return change.seen

    def changes_after(self, version: int) -> Iterator[Change]:
        return itertools.dropwhile(lambda change: change.version <= version, iter(self.history))


def copied(value: Any) -> Any:
    """A copy of a JSON value; several times as fast as one that looks for cycles."""
    if isinstance(value, dict):
        return {name: copied(each) for name, each in value.items()}
    return [copied(each) for each in value] if isinstance(value, list) else value


def key_of(found: Json) -> Key:
    metadata = found["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def not_found(plural: str, name: str) -> Refused:
    return Refused(404, "NotFound", f'{plural} "{name}" not found', {"name": name, "kind": plural})


def expired(version: int, oldest: int) -> Refused:
    return Refused(410, "Expired", f"too old resource version: {version} ({oldest})")


def conflict(plural: str, name: str, what: str, stored: str, stated: str) -> Refused:
    if what == "resourceVersion":
        message = "the object has been modified; please apply your changes to the latest version and try again"
    else:
        message = f"Precondition failed: UID in precondition: {stated}, UID in object meta: {stored}"
    return Refused(409, "Conflict", f'Operation cannot be fulfilled on {plural} "{name}": {message}', {"name": name})


def _intent(found: Json) -> Json:
    return {name: value for name, value in found.items() if name not in ("metadata", "status")}


def _is_graceful(plural: str, found: Json) -> bool:
    """A pod on a node is taken away by its kubelet; others at once."""
    status, spec = found.get("status") or {}, found.get("spec") or {}
    return plural == "pods" and bool(spec.get("nodeName")) and status.get("phase") not in ("Succeeded", "Failed")


assert set(_LETTERS) <= set(string.ascii_lowercase + string.digits)
