"""A stand-in for the garbage collector: deletes what has lost its owners, and pods whose node is gone.

As the real one: in the background by default; an owner deleted in the foreground stays until what blocks it is gone;
one deleted as an orphan's first loses its dependents. An object of an owner that was never there goes too. Deviation: a
namespace goes at once, and what is in it after that.
"""

from __future__ import annotations

from typing import Any

from apiserver.controllers.stepping import Due, Pair, has_ended, pair_of
from apiserver.store import Change, Store

Json = dict[str, Any]
Where = tuple[str, Pair]
"""Table, and namespace and name."""


class Collector:
    """Works on all objects of a store.

    Args:
        lost_node_seconds: after which a pod is deleted whose node is gone.
    """

    def __init__(self, store: Store, lost_node_seconds: float = 40.0) -> None:
        self._store, self._lost_node_seconds = store, lost_node_seconds
        self._uids: dict[str, Where] = {}
        self._dependents: dict[str, dict[Where, None]] = {}
        self._dirty: dict[Where, None] = {}
        self._namespaces_gone: list[str] = []
        self._nodes_gone = Due(store.seconds)
        for table in list(store.objects):
            for found in store.all(table):
                self.note(Change(store.version, table, None, found))

    def note(self, change: Change) -> None:
        found, where = change.seen, (change.plural, pair_of(change.seen))
        uid = found["metadata"]["uid"]
        for owner in _owners(change.before) if change.before else ():
            of_owner = self._dependents.get(owner, {})
            of_owner.pop(where, None)
            self._poll_one(owner)
        if change.after is None:
            self._uids.pop(uid, None)
            for dependent in self._dependents.get(uid, ()):
                self._dirty[dependent] = None
            if change.plural == "namespaces":
                self._namespaces_gone.append(found["metadata"]["name"])
            if change.plural == "nodes":
                self._nodes_gone.add(("", found["metadata"]["name"]), self._store.seconds() + self._lost_node_seconds)
            return
        self._uids[uid] = where
        for owner in _owners(change.after):
            self._dependents.setdefault(owner, {})[where] = None
        if _owners(change.after) or change.after["metadata"].get("finalizers"):
            self._dirty[where] = None

    def step(self) -> float | None:
        dirty, self._dirty = self._dirty, {}
        for table, pair in dirty:
            found = self._store.objects.get(table, {}).get(pair)
            if found is not None:
                self._collect(table, found)
        gone, self._namespaces_gone = self._namespaces_gone, []
        for namespace in gone:
            for table in list(self._store.objects):
                for found in list(self._store.all(table, namespace)):
                    self._store.delete(table, *pair_of(found), {})
        for _, node in self._nodes_gone.take():
            if ("", node) not in self._store.objects.get("nodes", {}):
                self._free(node)
        return self._nodes_gone.next_at()

    def _poll_one(self, uid: str) -> None:
        if uid in self._uids:
            self._dirty[self._uids[uid]] = None

    def _collect(self, table: str, found: Json) -> None:
        metadata = found["metadata"]
        finalizers = metadata.get("finalizers") or []
        if "deletionTimestamp" in metadata:
            if "orphan" in finalizers:
                self._orphan(metadata["uid"])
                self._without_finalizer(table, found, "orphan")
            elif "foregroundDeletion" in finalizers and not self._delete_blocking(metadata["uid"]):
                self._without_finalizer(table, found, "foregroundDeletion")
            return
        owners = metadata.get("ownerReferences") or []
        there = [owner for owner in owners if owner["uid"] in self._uids]
        if owners and not there:
            self._store.delete(table, *pair_of(found), {"propagationPolicy": "Background"})
        elif len(there) < len(owners):
            self._replace_owners(table, found, there)

    def _delete_blocking(self, uid: str) -> bool:
        """Delete the dependents; whether any that block their owner are still there."""
        blocked = False
        for table, pair in list(self._dependents.get(uid, ())):
            found = self._store.get(table, *pair)
            if "deletionTimestamp" not in found["metadata"]:
                self._store.delete(table, *pair, {"propagationPolicy": "Foreground"} if self._owns(found) else {})
            still = self._store.objects[table].get(pair)
            owners = (still or {"metadata": {}})["metadata"].get("ownerReferences") or ()
            blocked |= any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in owners)
        return blocked

    def _owns(self, found: Json) -> bool:
        return bool(self._dependents.get(found["metadata"]["uid"]))

    def _orphan(self, uid: str) -> None:
        for table, pair in list(self._dependents.get(uid, ())):
            found = self._store.get(table, *pair)
            owners = found["metadata"].get("ownerReferences") or []
            self._replace_owners(table, found, [owner for owner in owners if owner["uid"] != uid])

    def _replace_owners(self, table: str, found: Json, owners: list[Json]) -> None:
        metadata = {**found["metadata"], "ownerReferences": owners}
        self._store.replace(table, *pair_of(found), {**found, "metadata": metadata})

    def _without_finalizer(self, table: str, found: Json, name: str) -> None:
        left = [each for each in found["metadata"].get("finalizers") or () if each != name]
        metadata = {**found["metadata"], "finalizers": left}
        self._store.replace(table, *pair_of(found), {**found, "metadata": metadata})

    def _free(self, node: str) -> None:
        for pod in list(self._store.all("pods")):
            if (pod.get("spec") or {}).get("nodeName") == node:
                if not has_ended(pod):
                    status = {**(pod.get("status") or {}), "phase": "Failed", "reason": "NodeLost"}
                    pod = self._store.replace("pods", *pair_of(pod), {**pod, "status": status}, "status")  # noqa: PLW2901
                if pair_of(pod) in self._store.objects["pods"]:
                    self._store.delete("pods", *pair_of(pod), {"gracePeriodSeconds": 0})


def _owners(found: Json) -> list[str]:
    return [owner["uid"] for owner in found["metadata"].get("ownerReferences") or ()]
