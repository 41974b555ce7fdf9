"""Room for pods that are about to be made: what each node has left, less what was given away since; pure.

kube-scheduler decides where a pod goes. This keeps pods from being made that would only wait, and two jobs from waiting
for each other with half of their pods placed.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from cluster_agent.kubernetes.capacity import CPU, Amounts, NodeFacts, PodFacts, free_amounts
from cluster_agent.kubernetes.node_choice import NodeChoice, node_choice

_ANYWHERE = ({"operator": "Exists"},)
_PLAIN = NodeChoice()
_IN_BYTES = ("memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class Need:
    """What a pod takes, and the nodes that it may come to."""

    asks: Amounts
    choice: NodeChoice = _PLAIN


class Room:
    """What is left of a cluster.

    Args:
        nodes: of the cluster.
        pods: all that have not ended.
        names: namespaces and names of these pods; None: no pod is missing among them.
    """

    def __init__(
        self, nodes: Iterable[NodeFacts], pods: Iterable[PodFacts], names: Collection[tuple[str, str]] | None = None
    ) -> None:
        self._nodes, pods, self._names = list(nodes), list(pods), names
        self._by_name = {node.name: node for node in self._nodes}
        self._allowed: dict[str, frozenset[str]] = {}
        # With every toleration: which nodes a pod may come to is looked at when it is placed.
        self._free = free_amounts(self._nodes, pods, _ANYWHERE)
        for pod in pods:
            if not pod.node and pod.asks is not None:
                # One that waits for a node will have its room somewhere.
                self.take([Need(pod.asks, node_choice(pod.spec_of_nodes or {"tolerations": list(_ANYWHERE)}))])

    def take(self, needs: Sequence[Need]) -> bool:
        """Give room to some pods together; False, and nothing is given, where they do not fit."""
        keys = {id(need.choice): need.choice.key for need in needs}
        allowed = {id(need.choice): self._nodes_of(keys[id(need.choice)], need.choice) for need in needs}
        trial = {node: dict(self._free[node]) for node in frozenset().union(*allowed.values())}
        largest_first = sorted(needs, key=lambda each: sorted(each.asks.items()), reverse=True)
        # Who can use few nodes comes before who could have others.
        for need in sorted(largest_first, key=lambda each: len(allowed[id(each.choice)])):
            asks = need.asks.items()
            fitting = [
                node for node in allowed[id(need.choice)] if all(trial[node].get(name, 0) >= ask for name, ask in asks)
            ]
            if not fitting:
                return False
            # Where the least is left over: large pods find room longer.
            node = min(fitting, key=lambda name: (sorted(trial[name].items()), name))
            for name, amount in asks:
                trial[node][name] = trial[node].get(name, 0) - amount  # of nothing there may be none
        self._free |= trial
        return True

    def allows(self, node: str, choice: NodeChoice) -> bool:
        """Whether a pod may come to a node, whatever room it has; to one that is not there none may."""
        return node in self._by_name and choice.allows(self._by_name[node])

    def counts(self, namespace: str, name: str) -> bool:
        """Whether a pod is among those that were seen: one that was just made may not be."""
        return self._names is None or (namespace, name) in self._names

    def reserve(self, needs: Sequence[Need]) -> None:
        """Take room for pods that will come, each as far as there is any."""
        for need in needs:
            self.take([need])

    def too_large(self, task: str, asks: Amounts, choice: NodeChoice) -> str:
        """Why no node would have room for a pod though it were empty, in a line; empty where one would.

        Args:
            task: what the pod is, for the line.
            choice: the nodes that it may come to.
        """
        may_use = [dict(node.allocatable or ()) for node in self._nodes if choice.allows(node)]
        if any(all(node.get(name, 0) >= amount for name, amount in asks.items()) for node in may_use):
            return ""
        if not may_use:
            return f"there is no node that a {task} may use"
        takes = ", ".join(_words(name, asks[name]) for name in sorted(asks) if name != "pods")
        largest = ", ".join(
            _words(name, max(node.get(name, 0) for node in may_use)) for name in sorted(asks) if name != "pods"
        )
        return f"no node is as large as a {task} of it, which takes {takes}; the most that nodes have is {largest}"

    def _nodes_of(self, key: str, choice: NodeChoice) -> frozenset[str]:
        found = self._allowed.get(key)
        if found is None:
            names = [node.name for node in self._nodes if node.name in self._free and choice.allows(node)]
            found = self._allowed[key] = frozenset(names)
        return found


class ChosenNodes:
    """Nodes that a policy chose for jobs' tasks, each as often as that many may be there; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: dict[str, tuple[tuple[str, str], ...]] = {}

    def choose(self, uid: str, nodes: Sequence[tuple[str, str]]) -> None:
        """For a job, until the next decision: a role, and a node for one task of it."""
        with self._lock:
            self._nodes[uid] = tuple(nodes)

    def left(self, uid: str, taken: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Those of a job, less the nodes where its tasks of that role are already."""
        with self._lock:
            nodes = list(self._nodes.get(uid, ()))
        for node in taken:
            if node in nodes:
                nodes.remove(node)
        return nodes

    def forget(self, uids: Collection[str]) -> None:
        """Keep nothing but of these jobs."""
        with self._lock:
            self._nodes = {uid: nodes for uid, nodes in self._nodes.items() if uid in uids}


def _words(name: str, amount: int) -> str:
    if name == CPU:
        return f"{amount / 1000:g} cores"
    return f"{amount / 2**30:.4g} GiB of {name}" if name in _IN_BYTES else f"{amount} {name}"
