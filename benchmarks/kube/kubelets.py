"""A stand-in for scheduler and kubelets that takes thousands of pods through their lives: bound, running, gone.

The test cluster's own ones look at every node for every pod and keep what containers do; here a pod goes to the next
node that has its GPUs, and its process only pretends. It is attached to the test API server, in whose thread it works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Json = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""
_GPU = "nvidia.com/gpu"


class Kubelets:
    """Of all nodes.

    Args:
        store: of the test API server.
        gpus: of each node.
        begins: is shown each pod that is bound; whether its process runs at once, else `run` says when.
    """

    def __init__(
        self, store: Any, nodes: Sequence[str], gpus: int, begins: Callable[[Json], bool] = lambda _: True
    ) -> None:
        self._store, self._nodes, self._begins = store, list(nodes), begins
        self._free_gpus = dict.fromkeys(nodes, gpus)
        self._placed: dict[str, tuple[str, int]] = {}
        """By uid of a pod: the node, and the GPUs that it has of it."""
        self._begun: set[str] = set()
        self._due: dict[Key, None] = {}
        self._next = 0

    def note(self, change: Any) -> None:
        """See `Controller` of the test cluster."""
        if change.plural != "pods":
            return
        if change.after is not None:
            metadata = change.after["metadata"]
            self._due[metadata.get("namespace", ""), metadata["name"]] = None
            return
        uid = change.seen["metadata"]["uid"]
        self._begun.discard(uid)
        node, gpus = self._placed.pop(uid, ("", 0))
        if node:
            self._free_gpus[node] += gpus

    def step(self) -> float | None:
        """See `Controller`: nothing is due later."""
        due, self._due = self._due, {}
        for key in due:
            pod = self._store.objects.get("pods", {}).get(key)
            if pod is not None:
                self._poll_one(pod)
        return None

    def run(self, key: Key) -> None:
        """A pod's process runs; in the server's thread."""
        self._set_status(key, {"phase": "Running", "podIP": "10.0.0.1"})

    def end(self, key: Key) -> None:
        """A pod's process has ended well; in the server's thread."""
        pod = self._store.objects.get("pods", {}).get(key)
        if pod is not None:
            ended = {"name": pod["spec"]["containers"][0]["name"], "state": {"terminated": {"exitCode": 0}}}
            self._set_status(key, {"phase": "Succeeded", "containerStatuses": [ended]})

    def _poll_one(self, pod: Json) -> None:
        metadata, phase = pod["metadata"], (pod.get("status") or {}).get("phase", "Pending")
        key = metadata.get("namespace", ""), metadata["name"]
        if "deletionTimestamp" in metadata:
            self._store.delete("pods", *key, {"gracePeriodSeconds": 0})
        elif phase != "Pending":
            return
        elif not pod["spec"].get("nodeName"):
            node = self._node_for(pod)
            if node:
                self._store.replace("pods", *key, {**pod, "spec": {**pod["spec"], "nodeName": node}})
        elif metadata["uid"] not in self._begun:
            self._begun.add(metadata["uid"])
            if self._begins(pod):
                self.run(key)

    def _node_for(self, pod: Json) -> str:
        """The next node that has as many GPUs; empty where none has: the pod waits for its next change."""
        asked = sum(
            int((each.get("resources") or {}).get("requests", {}).get(_GPU, 0)) for each in pod["spec"]["containers"]
        )
        for _ in self._nodes:
            node, self._next = self._nodes[self._next], (self._next + 1) % len(self._nodes)
            if self._free_gpus[node] >= asked:
                self._free_gpus[node] -= asked
                self._placed[pod["metadata"]["uid"]] = node, asked
                return node
        return ""

    def _set_status(self, key: Key, status: Json) -> None:
        pod = self._store.objects.get("pods", {}).get(key)
        if pod is not None:
            made = {**pod, "status": {**(pod.get("status") or {}), **status}}
            self._store.replace("pods", *key, made, "status")
