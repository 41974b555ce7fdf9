"""Room for pods that are about to be made: what each node has left, less what was given away since; pure.

kube-scheduler decides where a pod goes. This keeps pods from being made that would only wait, and two jobs from waiting
for each other with half of their pods placed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from cluster_agent.kubernetes.capacity import CPU, Amounts, NodeFacts, PodFacts, free_amounts
from cluster_agent.kubernetes.node_choice import NodeChoice

_IN_BYTES = ("memory", "ephemeral-storage")
Tolerations = Sequence[dict[str, object]]


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
        # With every toleration: which nodes a pod may come to is looked at when it is placed.
        everywhere = [{"operator": "Exists"}]
        self._free = free_amounts(self._nodes, pods, everywhere)
        for pod in pods:
            if not pod.node and pod.asks is not None:
                self._place([pod.asks], set(self._free))  # one that waits for a node will have its room somewhere

    def take(self, asks: Sequence[Amounts], tolerations: Tolerations = ()) -> bool:
        """Give room to some pods together; False, and nothing is given, where they do not fit."""
        return self._place(asks, set(free_amounts(self._nodes, (), tolerations)))

    def counts(self, namespace: str, name: str) -> bool:
        """Whether a pod is among those that were seen: one that was just made may not be."""
        return self._names is None or (namespace, name) in self._names

    def reserve(self, asks: Sequence[Amounts], tolerations: Tolerations = ()) -> None:
        """Take room for pods that will come, each as far as there is any."""
        for ask in asks:
            self.take([ask], tolerations)

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

    def _place(self, asks: Sequence[Amounts], nodes: set[str]) -> bool:
        trial = {node: dict(free) for node, free in self._free.items() if node in nodes}
        for ask in sorted(asks, key=lambda each: sorted(each.items()), reverse=True):
            fitting = [node for node, free in trial.items() if all(free.get(n, 0) >= a for n, a in ask.items())]
            if not fitting:
                return False
            # Where the least is left over: large pods find room longer.
            node = min(fitting, key=lambda name: (sorted(trial[name].items()), name))
            for name, amount in ask.items():
                trial[node][name] = trial[node].get(name, 0) - amount  # of nothing there may be none
        self._free |= trial
        return True


def _words(name: str, amount: int) -> str:
    if name == CPU:
        return f"{amount / 1000:g} cores"
    return f"{amount / 2**30:.4g} GiB of {name}" if name in _IN_BYTES else f"{amount} {name}"
