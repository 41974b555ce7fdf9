"""Capacity for pods that are about to be made: what each node has left, less what was given away since; pure.

kube-scheduler decides where a pod goes. This keeps pods from being made that would only wait, and two jobs from waiting
for each other with half of their pods placed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cluster_agent.backends.kubernetes.training.step import CoordinatorReport, JobMemory
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.capacity import (
    CPU,
    Amounts,
    NodeChoice,
    NodeFacts,
    PodFacts,
    free_amounts,
    node_choice,
    requests_of,
)
from cluster_agent.kubernetes.resources import Json
from cluster_agent.kubernetes.training.manifests import COORDINATOR, role_of, template_of
from cluster_agent.kubernetes.training.training_job import TrainingJob
from elastic_runtime.control.messages import Size
from elastic_runtime.protocol.plan import JobPhase

_ANYWHERE = ({"operator": "Exists"},)
_PLAIN = NodeChoice()
_IN_BYTES = ("memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class PodNeed:
    """What a pod takes, and the nodes that it may come to."""

    requests: Amounts
    choice: NodeChoice = _PLAIN


class ClusterCapacity:
    """What is left of a cluster.

    Args:
        pods: all that have not ended.
        names: namespaces and names of these pods; None: no pod is missing among them.
    """

    def __init__(
        self, nodes: Iterable[NodeFacts], pods: Iterable[PodFacts], names: Collection[tuple[str, str]] | None = None
    ) -> None:
        self._nodes, pods, self._names = list(nodes), list(pods), names
        self._by_name = {node.name: node for node in self._nodes}
        self._allowed: dict[str, frozenset[str]] = {}
        # Tainted nodes too: which nodes a pod may come to is looked at when it is placed.
        self._free = free_amounts(self._nodes, pods)
        for pod in pods:
            if not pod.node and pod.requests is not None:
                # One that waits for a node will have its capacity somewhere.
                self.take([PodNeed(pod.requests, node_choice(pod.spec_of_nodes or {"tolerations": list(_ANYWHERE)}))])

    def take(self, needs: Sequence[PodNeed]) -> bool:
        """Give capacity to some pods together; False, and nothing is given, where they do not fit."""
        keys = {id(need.choice): need.choice.key for need in needs}
        allowed = {id(need.choice): self._nodes_of(keys[id(need.choice)], need.choice) for need in needs}
        trial = {node: dict(self._free[node]) for node in frozenset().union(*allowed.values())}
        largest_first = sorted(needs, key=lambda each: sorted(each.requests.items()), reverse=True)
        # Who can use few nodes comes before who could have others.
        for need in sorted(largest_first, key=lambda each: len(allowed[id(each.choice)])):
            requests = need.requests.items()
            fitting = [
                node
                for node in allowed[id(need.choice)]
                if all(trial[node].get(name, 0) >= ask for name, ask in requests)
            ]
            if not fitting:
                return False
            # Where the least is left over: large pods find a node longer.
            node = min(fitting, key=lambda name: (sorted(trial[name].items()), name))
            for name, amount in requests:
                trial[node][name] = trial[node].get(name, 0) - amount  # of nothing there may be none
        self._free |= trial
        return True

    def allows(self, node: str, choice: NodeChoice) -> bool:
        """Whether a pod may come to a node, whatever is free there; to one that is not there none may."""
        return node in self._by_name and choice.allows(self._by_name[node])

    def counts(self, namespace: str, name: str) -> bool:
        """Whether a pod is among those that were seen: one that was just made may not be."""
        return self._names is None or (namespace, name) in self._names

    def reserve(self, needs: Sequence[PodNeed]) -> None:
        """Take capacity for pods that will come, each as far as there is any."""
        for need in needs:
            self.take([need])

    def too_large(self, task: str, requests: Amounts, choice: NodeChoice) -> str:
        """Why no node could have a pod (`task`, in words) though it were empty, in a line; empty where one could."""
        may_use = [dict(node.allocatable or ()) for node in self._nodes if choice.allows(node)]
        if any(all(node.get(name, 0) >= amount for name, amount in requests.items()) for node in may_use):
            return ""
        if not may_use:
            return f"there is no node that a {task} may use"
        takes = ", ".join(_words(name, requests[name]) for name in sorted(requests) if name != "pods")
        largest = ", ".join(
            _words(name, max(node.get(name, 0) for node in may_use)) for name in sorted(requests) if name != "pods"
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
        """Forget all jobs but these."""
        with self._lock:
            self._nodes = {uid: nodes for uid, nodes in self._nodes.items() if uid in uids}


def _words(name: str, amount: int) -> str:
    if name == CPU:
        return f"{amount / 1000:g} cores"
    return f"{amount / 2**30:.4g} GiB of {name}" if name in _IN_BYTES else f"{amount} {name}"


# Choices of nodes of a TrainingJob's tasks; pure.
#
# Workers, parameter servers and the coordinator have templates of their own, and Kueue's admission may say more of
# each.

Fit = Callable[[str, Json], None]
"""Changes the pod of a role as Kueue's admission says; ValueError where its template says something else."""

COORDINATOR_REQUESTS: Amounts = {"cpu": 100, "memory": 256 << 20, "pods": 1}
"""Of a coordinator without a template."""


def task_requests(job: TrainingJob, task: str) -> Amounts:
    """What a task's pod takes; a role stands for any of its tasks."""
    role = role_of(task)
    if role == COORDINATOR:
        return requests_of(job.coordinator["spec"], {}) if job.coordinator else COORDINATOR_REQUESTS
    return job.worker.requests if role == "worker" else job.ps.requests


def choices_of(job: TrainingJob, fit: Fit | None = None) -> dict[str, NodeChoice]:
    """By role, the nodes that its pods may come to.

    Raises:
        ApiError: what Kueue's admission says cannot be read.
    """
    roles = ("worker",) if job.is_all_reduce else ("worker", "ps", COORDINATOR)
    return {role: _choice(template_of(job, role), role, fit) for role in roles}


def needs_of(job: TrainingJob, tasks: Iterable[str], choices: Mapping[str, NodeChoice]) -> list[PodNeed]:
    """What tasks need of nodes, each as its role does."""
    return [PodNeed(task_requests(job, task), choices[role_of(task)]) for task in tasks]


def _choice(template: Json, role: str, fit: Fit | None) -> NodeChoice:
    pod: Json = {"metadata": {}, "spec": dict(template.get("spec") or {})}
    if fit is not None:
        try:
            fit(role, pod)
        except (ValueError, TypeError, AttributeError):
            # It will be refused, and told, where the pod is made.
            pod["spec"] = template["spec"]
    return node_choice(pod["spec"])


# Reservations: capacity that TrainingJobs were promised and whose pods nobody sees yet; pure.
#
# A job that grows has its capacity from the moment in which its coordinator is asked: the coordinator names its new
# tasks a moment later, then their pods are made, and then those who follow all pods see them. Until then it would be
# taken for free.

_HAS_NONE = (JobPhase.SUSPENDING, JobPhase.SUSPENDED, JobPhase.FINISHED, JobPhase.FAILED)
_REQUEST_SECONDS = 30.0
"""A coordinator that has not taken up by then what it was asked will not."""


def promised(job: TrainingJob, job_report: CoordinatorReport | None, memory: JobMemory, now: float) -> Size:
    """How many tasks of each role a running job has, or has capacity for.

    Args:
        job_report: what its coordinator says; None where it cannot be asked: what it said before counts.
        memory: of the job; is changed.
        now: monotonic seconds.
    """
    if job_report is not None and not job_report.falsehood:
        memory.desired = job_report.status.target if job_report.status.phase not in _HAS_NONE else Size(0, 0)
        size, since = memory.requested
        if job_report.status.target == size or now - since > _REQUEST_SECONDS:
            memory.requested = Size(0, 0), now
    if memory.desired is None:  # an agent that has just begun: what was noted last
        return Size(job.granted.ps, job.granted.workers)
    requested = memory.requested[0]
    servers, workers = max(memory.desired.servers, requested.servers), max(memory.desired.workers, requested.workers)
    return Size(min(servers, job.most.ps), min(workers, job.most.workers))


def reserve(
    free_capacity: ClusterCapacity,
    job: TrainingJob,
    pods: Iterable[TaskPod],
    job_report: CoordinatorReport | None,
    memory: JobMemory,
    now: float,
    choices: Mapping[str, NodeChoice] | None = None,
) -> None:
    """Take the capacity that a job was promised, and that no pod takes yet.

    Args:
        pods: all that carry its name.
        choices: by role, the nodes that its pods may come to; None: those that its templates say.
    """
    choices = choices_of(job) if choices is None else choices
    ours = [pod for pod in pods if pod.owner == job.uid and not pod.ended]
    for pod in ours:
        if not free_capacity.counts(pod.namespace, pod.name):
            free_capacity.reserve(needs_of(job, [pod.task], choices))
    if job.outcome or job.deleting or not any(pod.task == COORDINATOR for pod in ours):
        return
    leaving = job_report.status.leaving if job_report is not None else ()
    here = [pod.task for pod in ours if not pod.deleting and pod.task not in leaving]
    size = promised(job, job_report, memory, now)
    missing = ["ps"] * (size.servers - _count(here, "ps")) + ["worker"] * (size.workers - _count(here, "worker"))
    free_capacity.reserve(needs_of(job, missing, choices))


def _count(tasks: Collection[str], role: str) -> int:
    return sum(task.rpartition("-")[0] == role for task in tasks)
