"""A stand-in for the kubelets of all nodes: takes pods through their lives, whatever their containers run as.

A pod that is bound to a node gets an address, its containers start, and when they end the pod has Succeeded or Failed,
or they start again, by its `restartPolicy`. A pod that is deleted is told to end, and killed when its grace is over;
then the pod is gone. What containers run as is a `Runtime`'s business. Not there: init containers and sidecars (which
are taken as done), probes (a container is ready when it runs), resources, eviction.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from apiserver.controllers.addresses import Addresses
from apiserver.controllers.events import record
from apiserver.controllers.stepping import Due, Pair, has_ended, pair_of, with_condition
from apiserver.store import Change, Refused, Store

Json = dict[str, Any]
_COMPONENT = "kubelet"
_ADDRESS_RETRY_SECONDS = 0.2


class CannotStart(Exception):
    """A container cannot be started; it is tried again.

    Attributes:
        reason: as in a container's status: ImagePullBackOff, CreateContainerConfigError.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Runtime(Protocol):
    """What containers run as. A run is known by its pod's uid; it is that of all containers of the pod together."""

    def start(self, pod: Json, address: str, ended: Callable[[], None]) -> None:
        """Start a pod's containers.

        Args:
            ended: to be called, in the store's thread, when the run has ended by itself; where `due` says when a run
                ends, it need not be.

        Raises:
            CannotStart: not now.
        """

    def exit_code(self, uid: str) -> int | None:
        """With which a run ended; None while it runs."""

    def last_words(self, pod: Json) -> str:
        """What a run that has ended by itself left to be read."""

    def due(self, uid: str) -> float | None:
        """When a run will end by itself, in seconds of the store's clock; None where nobody knows."""

    def send(self, uid: str, number: signal.Signals) -> None:
        """Send a signal to a run; after SIGKILL it has ended."""

    def forget(self, uid: str) -> None:
        """Drop what there is of a run that has ended, when its pod is gone."""


@dataclass(slots=True)
class _Run:
    """A pod on its node."""

    address: str
    started: str = ""
    restarts: int = 0
    begins_at: float | None = None
    runs: bool = False
    kill_at: float | None = None


class Kubelet:
    """The kubelets of all nodes.

    Args:
        restart_seconds: before a container that ended, or that could not start, is tried again; the real one begins
            with 10 and doubles.
        wake: asks for a step.
    """

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        addresses: Addresses,
        wake: Callable[[], None],
        restart_seconds: float = 10.0,
    ) -> None:
        self._store, self._runtime, self._addresses = store, runtime, addresses
        self._wake, self._restart_seconds = wake, restart_seconds
        self.silent: set[str] = set()
        """Nodes whose kubelet says and does nothing any more; what runs there goes on."""
        self._due = Due(store.seconds)
        self._runs: dict[str, _Run] = {}  # by the pod's uid
        for found in store.all("pods"):
            self.note(Change(store.version, "pods", None, found))

    def note(self, change: Change) -> None:
        if change.plural != "pods":
            return
        if change.after is None:
            self._drop(change.seen)
        elif (change.after.get("spec") or {}).get("nodeName"):
            self._due.add(pair_of(change.after))

    def step(self) -> float | None:
        for name in self._due.take():
            pod = self._store.objects.get("pods", {}).get(name)
            if pod is not None and pod["spec"]["nodeName"] not in self.silent:
                self._poll_one(pod)
        return self._due.next_at()

    def speak(self, node: str) -> None:
        """Let a node's kubelet go on that was silent."""
        self.silent.discard(node)
        for pod in self._store.all("pods"):
            if (pod.get("spec") or {}).get("nodeName") == node:
                self._due.add(pair_of(pod))
        self._wake()

    def crash(self, node: str) -> None:
        """Let a node die with all that runs there; nobody says so, and its pods are Running until they are deleted."""
        self.silent.add(node)
        for pod in self._store.all("pods"):
            if (pod.get("spec") or {}).get("nodeName") == node and pod["metadata"]["uid"] in self._runs:
                self._runtime.send(pod["metadata"]["uid"], signal.SIGKILL)

    def _poll_one(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        run = self._runs.get(uid)
        if has_ended(pod):
            if run is not None:  # somebody else has said so: nothing of it may go on
                self._drop(pod)
            if "deletionTimestamp" in pod["metadata"]:
                self._take_away(pod)
            return
        if run is None and "deletionTimestamp" in pod["metadata"]:
            self._take_away(pod)
            return
        if run is None:
            address = self._addresses.take(pod)
            if not address:
                self._due.add(pair_of(pod), self._store.seconds() + _ADDRESS_RETRY_SECONDS)
                return
            run = self._runs[uid] = _Run(address)
        if run.runs:
            code = self._runtime.exit_code(uid)
            if code is not None:
                self._ended(pod, run, code)
            elif "deletionTimestamp" in pod["metadata"]:
                self._stop(pod, run)
        elif "deletionTimestamp" in pod["metadata"]:
            self._write(pod, run, "Failed", {"terminated": self._terminated(137, run)})
        elif run.begins_at is None or run.begins_at <= self._store.seconds():
            self._start(pod, run)

    def _start(self, pod: Json, run: _Run) -> None:
        uid, name = pod["metadata"]["uid"], pair_of(pod)
        run.begins_at = None
        try:
            self._runtime.start(pod, run.address, lambda: self._ask_for_look(name))
        except CannotStart as why:
            run.begins_at = self._store.seconds() + self._restart_seconds
            self._due.add(name, run.begins_at)
            record(self._store, pod, "Pod", "Failed", str(why), _COMPONENT, warns=True)
            self._write(pod, run, "Pending", {"waiting": {"reason": why.reason, "message": str(why)}})
            return
        run.runs, run.started = True, self._store.now()
        record(self._store, pod, "Pod", "Started", f"Started container {_first(pod)['name']}", _COMPONENT)
        self._write(pod, run, "Running", {"running": {"startedAt": run.started}})
        self._due_with_run(name, uid)

    def _ended(self, pod: Json, run: _Run, code: int) -> None:
        run.runs = False
        policy = pod["spec"].get("restartPolicy", "Always")
        words = self._runtime.last_words(pod)
        ended = {"terminated": {**self._terminated(code, run), **({"message": words} if words else {})}}
        if "deletionTimestamp" in pod["metadata"] or policy == "Never" or (policy == "OnFailure" and code == 0):
            self._write(pod, run, "Failed" if code else "Succeeded", ended)
            return
        run.restarts += 1
        run.begins_at = self._store.seconds() + self._restart_seconds
        self._due.add(pair_of(pod), run.begins_at)
        text = f"Back-off restarting failed container {_first(pod)['name']}"
        record(self._store, pod, "Pod", "BackOff", text, _COMPONENT, warns=True)
        self._write(pod, run, "Running", {"waiting": {"reason": "CrashLoopBackOff", "message": text}}, ended)

    def _stop(self, pod: Json, run: _Run) -> None:
        uid, name = pod["metadata"]["uid"], pair_of(pod)
        grace = float(pod["metadata"].get("deletionGracePeriodSeconds", 30))
        now = self._store.seconds()
        if run.kill_at is None:
            record(self._store, pod, "Pod", "Killing", f"Stopping container {_first(pod)['name']}", _COMPONENT)
            self._runtime.send(uid, signal.SIGTERM)
            run.kill_at = now + grace
        run.kill_at = min(run.kill_at, now + grace)  # a second delete may shorten it
        if now >= run.kill_at:
            self._runtime.send(uid, signal.SIGKILL)
        code = self._runtime.exit_code(uid)
        if code is not None:
            self._ended(pod, run, code)
            return
        self._due.add(name, run.kill_at)
        self._due_with_run(name, uid)

    def _ask_for_look(self, name: Pair) -> None:
        self._due.add(name)
        self._wake()

    def _due_with_run(self, name: Pair, uid: str) -> None:
        at = self._runtime.due(uid)
        if at is not None:
            self._due.add(name, at)

    def _terminated(self, code: int, run: _Run) -> Json:
        found: Json = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
        return {**found, **({"startedAt": run.started} if run.started else {}), "finishedAt": self._store.now()}

    def _write(self, pod: Json, run: _Run, phase: str, state: Json, last: Json | None = None) -> None:
        namespace, name = pair_of(pod)
        try:
            pod = self._store.get("pods", namespace, name)
        except Refused:
            return  # it went in between; `note` has dropped the run
        ready = "True" if "running" in state else "False"
        now, conditions = self._store.now(), (pod.get("status") or {}).get("conditions")
        why = "" if ready == "True" else "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
        for kind in ("PodReadyToStartContainers", "Initialized"):
            conditions = with_condition(conditions, now, kind, "True", "", "")
        for kind in ("Ready", "ContainersReady"):
            conditions = with_condition(conditions, now, kind, ready, why, "")
        before = pod.get("status") or {}
        status = {
            **before,
            "phase": phase,
            "conditions": conditions,
            "hostIP": self._addresses.of_node(pod["spec"]["nodeName"]),
            "podIP": run.address,
            "podIPs": [{"ip": run.address}],
            "startTime": before.get("startTime") or now,
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container.get("image", ""),
                    "imageID": "",
                    "ready": ready == "True",
                    "started": ready == "True",
                    "restartCount": run.restarts,
                    "state": state,
                    "lastState": last or {},
                }
                for container in pod["spec"]["containers"]
            ],
        }
        self._store.replace("pods", namespace, name, {**pod, "status": status}, "status")

    def _drop(self, pod: Json) -> None:
        """Nothing of a pod may go on: it has ended, or is gone."""
        uid = pod["metadata"]["uid"]
        if self._runs.pop(uid, None) is None:
            return
        if self._runtime.exit_code(uid) is None:
            self._runtime.send(uid, signal.SIGKILL)
        self._addresses.give_back(pod)
        self._runtime.forget(uid)

    def _take_away(self, pod: Json) -> None:
        self._store.delete("pods", *pair_of(pod), {"gracePeriodSeconds": 0})


def _first(pod: Json) -> Json:
    found: Json = pod["spec"]["containers"][0]
    return found
