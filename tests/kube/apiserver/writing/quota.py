"""Resource quotas: what they refuse, and what they say is used.

Counted as the real server counts: requests and limits of pods that have not ended, and numbers of objects.
"""

from __future__ import annotations

from typing import Any

from apiserver.controllers.requests import ONE, Amounts, amount, requests_of
from apiserver.controllers.stepping import has_ended
from apiserver.store import Change, Refused, Store

Json = dict[str, Any]
_TABLE = "resourcequotas"
_COMPUTE = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")


class Quotas:
    """Quotas of a store: checked when objects are made; their status is a controller's work."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dirty: set[str] = set()

    def check(self, table: str, found: Json) -> None:
        """Refuse an object that would exceed a quota.

        Raises:
            Refused: 403.
        """
        namespace = found["metadata"].get("namespace", "")
        for quota in self._of(namespace):
            hard = {name: amount(value) for name, value in (quota["spec"].get("hard") or {}).items()}
            takes = {name: value for name, value in _takes(table, found).items() if name in hard}
            self._require_stated(table, found, quota, hard)
            used = self._used(namespace, set(takes))
            over = sorted(name for name, value in takes.items() if used.get(name, 0) + value > hard[name])
            if over:
                parts = [
                    f"{what}: " + ",".join(f"{name}={_text(values.get(name, 0))}" for name in over)
                    for what, values in (("requested", takes), ("used", used), ("limited", hard))
                ]
                line = f"exceeded quota: {quota['metadata']['name']}, {', '.join(parts)}"
                raise _forbidden(table, found, line)

    def note(self, change: Change) -> None:
        namespace = change.seen["metadata"].get("namespace", "")
        if change.plural == _TABLE or any(True for _ in self._of(namespace)):
            self._dirty.add(namespace)

    def step(self) -> float | None:
        dirty, self._dirty = self._dirty, set()
        for namespace in sorted(dirty):
            for quota in list(self._of(namespace)):
                hard = quota["spec"].get("hard") or {}
                used = self._used(namespace, set(hard))
                status = {"hard": hard, "used": {name: _text(used.get(name, 0)) for name in hard}}
                if quota.get("status") != status:
                    name = quota["metadata"]["name"]
                    self._store.replace(_TABLE, namespace, name, {**quota, "status": status}, "status")
        return None

    def _of(self, namespace: str) -> list[Json]:
        return list(self._store.all(_TABLE, namespace)) if namespace and self._store.objects.get(_TABLE) else []

    def _used(self, namespace: str, names: set[str]) -> Amounts:
        total: Amounts = {}
        tables = {"pods"} | {_table_of(name) for name in names if name.startswith("count/")} | (names & _COUNTED)
        for table in tables:
            for found in self._store.all(table, namespace):
                for name, value in _takes(table, found).items():
                    if name in names:
                        total[name] = total.get(name, 0) + value
        return total

    def _require_stated(self, table: str, found: Json, quota: Json, hard: Amounts) -> None:
        """A quota of a compute resource wants every container to say how much of it."""
        if table != "pods":
            return
        missing = []
        for name in sorted(set(hard) & set(_COMPUTE)):
            group, _, resource = name.rpartition(".")
            for container in found["spec"].get("containers") or ():
                resources = container.get("resources") or {}
                stated = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
                stated = (resources.get("limits") or {}) if group == "limits" else stated
                if resource not in stated:
                    missing.append(f"{name} for: {container['name']}")
        if missing:
            line = f"failed quota: {quota['metadata']['name']}: must specify {'; '.join(missing)}"
            raise _forbidden(table, found, line)


_COUNTED = {"configmaps", "secrets", "services", "persistentvolumeclaims", "resourcequotas"}


def _takes(table: str, found: Json) -> Amounts:
    takes: Amounts = {f"count/{table}": ONE}
    if table in _COUNTED:
        takes[table] = ONE
    if table == "pods" and not has_ended(found):
        takes["pods"] = ONE
        for name, value in requests_of(found).items():
            if name != "pods":
                takes[f"requests.{name}"] = value
                if name in ("cpu", "memory"):
                    takes[name] = value
        for container in found["spec"].get("containers") or ():
            for name, stated in ((container.get("resources") or {}).get("limits") or {}).items():
                takes[f"limits.{name}"] = takes.get(f"limits.{name}", 0) + amount(stated)
    return takes


def _table_of(name: str) -> str:
    return name.partition("/")[2]


def _forbidden(table: str, found: Json, line: str) -> Refused:
    name, plural = found["metadata"].get("name", ""), table.partition(".")[0]
    return Refused(403, "Forbidden", f'{plural} "{name}" is forbidden: {line}', {"name": name, "kind": plural})


def _text(value: int) -> str:
    whole, rest = divmod(value, ONE)
    if rest:
        return f"{value * 1000 // ONE}m"
    return next((f"{whole // size}{suffix}" for suffix, size in _BINARY if whole and whole % size == 0), str(whole))


_BINARY = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
