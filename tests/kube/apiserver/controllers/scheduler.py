"""A stand-in for kube-scheduler: binds pods to nodes with room, one after the other, and says why it cannot.

As the real one: pods of higher priority first, then the older; a preferred node is taken if it has room, and another
one if not; what fits nowhere is tried again when anything that could help has changed. Not there: preemption, affinity
between pods, spreading, volumes, back-off between attempts.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from apiserver.controllers.events import record
from apiserver.controllers.fitting import preference, refusal
from apiserver.controllers.requests import Amounts, requests_of, room_of
from apiserver.controllers.stepping import Pair, has_ended, pair_of, with_condition
from apiserver.store import Change, Store

Json = dict[str, Any]
_SAMPLE = 20
"""Nodes with room among which one is chosen for a pod without affinity; the next pod's search begins after them."""


class Scheduler:
    """Binds pods of its name.

    Args:
        name: `schedulerName` of the pods that are its own.
    """

    def __init__(self, store: Store, name: str = "default-scheduler") -> None:
        self._store, self._name = store, name
        self._nodes: dict[str, Json] = {}
        self._room: dict[str, Amounts] = {}
        self._used: dict[str, Amounts] = {}
        self._takes: dict[str, tuple[str, Amounts]] = {}  # by the pod's uid: the node and what it takes there
        self._pending: dict[Pair, None] = {}
        self._waiting: dict[Pair, None] = {}  # tried in vain; again when something has changed
        self._freed = False
        self._names: list[str] | None = None  # of all nodes, sorted; None when they have to be sorted again
        self._start = 0
        for table in ("nodes", "pods"):
            for found in store.all(table):
                self.note(Change(store.version, table, None, found))

    def note(self, change: Change) -> None:
        if change.plural == "nodes":
            self._note_node(change)
        elif change.plural == "pods":
            self._note_pod(change)

    def step(self) -> float | None:
        if self._freed:
            self._pending |= self._waiting
            self._waiting.clear()
            self._freed = False
        if not self._pending:
            return None
        table = self._store.objects.get("pods", {})
        pods = [table[name] for name in self._pending if name in table]
        self._pending.clear()
        pods.sort(key=lambda pod: (-int((pod.get("spec") or {}).get("priority") or 0), _made(pod)))
        vain: dict[str, str] = {}  # what could not be placed in this step cannot either if it asks for the same
        for pod in pods:
            self._place(pod, vain)
        return None

    def _note_node(self, change: Change) -> None:
        name = change.seen["metadata"]["name"]
        if change.before is None or change.after is None:
            self._names = None
        if change.after is None:
            del self._nodes[name], self._room[name]
            return
        before = self._nodes.get(name)
        self._nodes[name] = change.after
        self._room[name] = room_of(change.after)
        if before is None or _offer(before) != _offer(change.after):
            self._freed = True

    def _note_pod(self, change: Change) -> None:
        pod, name = change.seen, pair_of(change.seen)
        uid, on = pod["metadata"]["uid"], (pod.get("spec") or {}).get("nodeName", "")
        gone = change.after is None or has_ended(pod)
        had = self._takes.pop(uid, None)
        if had is not None:
            for resource, value in had[1].items():
                self._used[had[0]][resource] -= value
        if on and not gone:
            takes = requests_of(pod)
            self._takes[uid] = (on, takes)
            used = self._used.setdefault(on, {})
            for resource, value in takes.items():
                used[resource] = used.get(resource, 0) + value
        if had is not None and (gone or had[1] != self._takes[uid][1]):
            self._freed = True
        self._waiting.pop(name, None)
        if gone or on or not self._is_mine(pod):
            self._pending.pop(name, None)
        elif change.before is None or _request(change.before) != _request(pod):
            self._pending[name] = None
        else:
            self._waiting[name] = None  # only its status or metadata changed

    def _is_mine(self, pod: Json) -> bool:
        wanted = (pod.get("spec") or {}).get("schedulerName", "default-scheduler")
        return bool(wanted == self._name and "deletionTimestamp" not in pod["metadata"])

    def _place(self, pod: Json, vain: dict[str, str]) -> None:
        if (pod.get("spec") or {}).get("schedulingGates"):
            self._say(pod, "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
            return
        kind = json.dumps(_request(pod), sort_keys=True)
        if kind not in vain:
            best, reasons = self._best(pod)
            if best:
                self._bind(pod, best)
                return
            listed = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
            vain[kind] = f"0/{len(self._nodes)} nodes are available: {listed or 'no nodes available to schedule pods'}."
        if self._say(pod, "Unschedulable", vain[kind]):
            record(self._store, pod, "Pod", "FailedScheduling", vain[kind], self._name, warns=True)
        self._waiting[pair_of(pod)] = None

    def _best(self, pod: Json) -> tuple[str, Counter[str]]:
        """The node for a pod; empty where none has room, with the reasons."""
        takes = requests_of(pod)
        reasons: Counter[str] = Counter()
        fitting: list[tuple[float, float, str]] = []
        names = self._names if self._names is not None else sorted(self._nodes)
        self._names = names
        # In a large cluster the real one looks at a part of the nodes as well, unless a pod has wishes: see `_SAMPLE`.
        enough = len(names) if (pod.get("spec") or {}).get("affinity") else _SAMPLE
        for number in range(len(names)):
            name = names[(self._start + number) % len(names)]
            why = refusal(pod, self._nodes[name])
            short = [] if why else self._short_of(name, takes)
            if why or short:
                reasons.update([why] if why else short)
                continue
            fitting.append((-preference(pod, self._nodes[name]), -self._free_share(name, takes), name))
            if len(fitting) >= enough:
                self._start = (self._start + number + 1) % len(names)
                break
        return (min(fitting)[2] if fitting else ""), reasons

    def _short_of(self, node: str, takes: Amounts) -> list[str]:
        room, used = self._room[node], self._used.get(node, {})
        short = [name for name, value in takes.items() if value and room.get(name, 0) - used.get(name, 0) < value]
        return ["Too many pods" if name == "pods" else f"Insufficient {name}" for name in short]

    def _free_share(self, node: str, takes: Amounts) -> float:
        """The mean share of cpu and memory that would be left, by which the emptier node is taken."""
        room, used = self._room[node], self._used.get(node, {})
        shares = [
            1.0 - (used.get(name, 0) + takes.get(name, 0)) / room[name] for name in ("cpu", "memory") if room.get(name)
        ]
        return sum(shares) / len(shares) if shares else 0.0

    def _bind(self, pod: Json, node: str) -> None:
        namespace, name = pair_of(pod)
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node}}
        found = self._store.replace("pods", namespace, name, bound, "binding")
        conditions = (found.get("status") or {}).get("conditions")
        status = {
            **(found.get("status") or {}),
            "conditions": with_condition(conditions, self._store.now(), "PodScheduled", "True", "", ""),
        }
        self._store.replace("pods", namespace, name, {**found, "status": status}, "status")
        record(self._store, pod, "Pod", "Scheduled", f"Successfully assigned {namespace}/{name} to {node}", self._name)

    def _say(self, pod: Json, reason: str, text: str) -> bool:
        """Whether that was news."""
        namespace, name = pair_of(pod)
        was = pod.get("status") or {}
        conditions = with_condition(was.get("conditions"), self._store.now(), "PodScheduled", "False", reason, text)
        if conditions == was.get("conditions"):
            return False
        status = {"phase": "Pending", **was, "conditions": conditions}
        self._store.replace("pods", namespace, name, {**pod, "status": status}, "status")
        return True


def _request(pod: Json) -> Json:
    """What of a pod decides where it may be."""
    spec = pod.get("spec") or {}
    names = ("containers", "initContainers", "resources", "overhead", "nodeSelector", "affinity", "tolerations")
    found = {name: spec.get(name) for name in (*names, "schedulingGates", "schedulerName")}
    for name in ("containers", "initContainers"):
        found[name] = [(each.get("resources"), each.get("restartPolicy")) for each in spec.get(name) or ()]
    return found


def _offer(node: Json) -> Any:
    """What of a node decides which pods may be on it."""
    return (node.get("spec"), (node.get("status") or {}).get("allocatable"), node["metadata"].get("labels"))


def _made(pod: Json) -> Any:
    return pod["metadata"]["creationTimestamp"], int(pod["metadata"]["resourceVersion"])
