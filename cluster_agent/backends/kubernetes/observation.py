"""Observation of a Kubernetes cluster: the targets that a decision is about, and the capacity that they share; pure.

What other pods take is not there; what the targets' own pods take is, since that is what is being decided about.

Deviation: policies know CPU and GPUs only. Memory is counted as CPU, at the ratio of what the nodes have of both, free
or not: a task takes the larger of the two, and a node offers what any mix of these tasks is sure to fit into. Nothing
is promised that is not there; where all tasks are alike, nothing stays unused either. Where they differ much in what
they need more of, some memory or CPU may.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Protocol

from cluster_agent.backends.kubernetes.pools import Reach, limited_to_nodes, seats
from cluster_agent.backends.kubernetes.scrapes import Reading
from cluster_agent.kubernetes.capacity import CPU, Amounts, NodeChoice, NodeFacts, PodFacts, free_amounts, times
from cluster_agent.kubernetes.resources import JOBS
from cluster_agent.kubernetes.targets import ElasticTarget, TargetFacts
from policy_net.accelerators import is_counted
from policy_net.domain import (
    SUSPENDED,
    Allocation,
    CapacityMode,
    ClusterState,
    Decision,
    Job,
    JobKind,
    Node,
    Resources,
)

MEMORY: Final = "memory"
_LEAST_REMAINING = 1e-3
_UNKNOWN_SAMPLES = 10_000.0
"""Of a job that says nothing of its work, before it has said how far it is."""
_MOST_SAMPLES = 1e15


@dataclass(frozen=True, slots=True)
class ObservedTarget:
    """A target that a decision is about, and the object that it points at.

    Attributes:
        is_whole: as many of its pods run as it is to have workers, and none is leaving.
        reading: of its own metrics, where those say its progress.
        trouble: why one of its pods does not start, such as for its image; empty where all do.
    """

    target: ElasticTarget
    facts: TargetFacts
    samples: float | None
    total_samples: float | None
    is_whole: bool = False
    reading: Reading | None = None
    trouble: str = ""

    @property
    def job_id(self) -> str:
        """Namespace and name of the target."""
        return self.target.job_id


@dataclass(frozen=True, slots=True)
class Observed:
    """What there is to decide about.

    Attributes:
        left_out: why each other target is in no decision, in a line, by its namespace and name.
        over: those of them whose objects are over, with which nothing is wrong.
        reach: the nodes that a job's workers can use, of those that cannot use all.
        ps_reach: the same of its parameter servers.
        gpu_types: of all nodes; empty where places make no difference.
        places: where the workers of each member are, if all are on known nodes.
        free_capacity: that the decision is about, to see later whether it has grown.
    """

    state: ClusterState
    members: Mapping[str, ObservedTarget]
    left_out: Mapping[str, str]
    over: frozenset[str] = frozenset()
    reach: Reach = field(default_factory=dict)
    ps_reach: Reach = field(default_factory=dict)
    gpu_types: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    free_capacity: CapacityLeft = field(default_factory=lambda: CapacityLeft({}, frozenset(), ()))


@dataclass(frozen=True, slots=True)
class CapacityLeft:
    """Capacity that others leave to the jobs of a decision on each node, and what tasks take there, each kind once.

    Attributes:
        owners: uids of whose pods do not count.
    """

    free: Mapping[str, Amounts]
    owners: frozenset[str]
    demands: tuple[Amounts, ...]

    def has_grown(self, nodes: Iterable[NodeFacts], pods: Iterable[PodFacts]) -> bool:
        """Whether a node has capacity for more tasks of a kind now, since pods of others are gone."""
        now = free_amounts(nodes, pods, lambda pod: pod.owner in self.owners)
        grown = ((free_capacity, now.get(name, {})) for name, free_capacity in self.free.items())
        return any(
            times(requests, after) > times(requests, before)
            for before, after in grown
            if any(after.get(name, 0) > amount for name, amount in before.items())
            for requests in self.demands
        )


@dataclass(frozen=True, slots=True)
class SeenCluster:
    """What is kept of a cluster: objects of targets by kind, namespace and name, readings by their uids."""

    nodes: Iterable[NodeFacts]
    pods: Iterable[PodFacts]
    targets: Iterable[ElasticTarget]
    found: Mapping[tuple[str, str, str], TargetFacts]
    readings: Mapping[str, Reading] = field(default_factory=dict)


class OwnJobs(Protocol):
    """Jobs whose pods are the agent's own; `TrainingJobs` are."""

    def choices(self) -> Mapping[str, tuple[str, Mapping[str, NodeChoice]]]:
        """By uid: the id of each, and by role (`worker`, `ps`, `coordinator`) the nodes that its pods may come to."""
        ...

    def observe(self, demand: Callable[[Amounts], Resources]) -> Sequence[Job]:
        """Those that a decision is about; `demand` is what a task takes, as policies count it."""
        ...


def observed(
    seen: SeenCluster,
    unix_seconds: float,
    slot_seconds: float,
    unreported: frozenset[str] = frozenset(),
    own: OwnJobs | None = None,
) -> Observed:
    """What a policy is asked about.

    Args:
        unreported: uids of objects that were in an earlier decision and whose end was not reported yet: they are in one
            more decision, in which they have nothing and may have nothing.
        own: jobs that are decided about besides the targets.
    """
    pods = list(seen.pods)
    running = running_workers(pods)
    troubles = {pod.owner: pod.trouble for pod in reversed(pods) if pod.trouble and not pod.is_terminating}
    members: list[ObservedTarget] = []
    left_out: dict[str, str] = {}
    over = set()
    taken: dict[str, str] = {}
    for target in sorted(seen.targets, key=lambda each: (each.created, each.namespace, each.name)):
        job_id = target.job_id
        facts = seen.found.get(target.object_key)
        problem = _problem(target, facts)
        if not problem and facts is not None and facts.uid in taken:
            problem = f"ElasticTarget {taken[facts.uid]} points at {target.ref.kind} {target.ref.name} already"
        if problem:
            left_out[job_id] = problem
            if facts is not None and facts.is_over:
                over.add(job_id)
        if facts is None or (problem and not (facts.is_over and facts.uid in unreported - set(taken))):
            continue
        taken[facts.uid] = target.name
        is_whole = running.get(facts.uid) == facts.workers
        reading = seen.readings.get(facts.uid)
        counts, trouble = stated_progress(target, facts, reading), troubles.get(facts.uid, "")
        members.append(ObservedTarget(target, facts, *counts, is_whole, reading, trouble))
    choices: dict[str, tuple[str, Mapping[str, NodeChoice]]] = {
        uid: (member.job_id, {"worker": member.facts.choice}) for uid, member in zip(taken, members, strict=True)
    }
    if own is not None:
        choices |= own.choices()
    nodes = list(seen.nodes)
    # A node counts where any job's pods may come to it; what a job cannot use of them is in its reach.
    may_use = {choice.key: choice for _, by_role in choices.values() for choice in by_role.values()}
    usable = {key: frozenset(node.name for node in nodes if each.allows(node)) for key, each in may_use.items()}
    free = free_amounts(nodes, pods, lambda pod: pod.owner in choices)
    free = {
        name: free_capacity for name, free_capacity in free.items() if any(name in each for each in usable.values())
    }
    usable = {key: each & frozenset(free) for key, each in usable.items()}
    reach, ps_reach, leader_reach = (
        {
            job_id: usable[by_role[role].key]
            for job_id, by_role in choices.values()
            if role in by_role and usable[by_role[role].key] != free.keys()
        }
        for role in ("worker", "ps", "coordinator")
    )
    per_byte = _milli_per_byte(dict(node.allocatable or ()) for node in nodes if node.name in free)
    demands = [member.facts.requests or {} for member in members if not member.facts.is_over]

    def demand(requests: Amounts) -> Resources:
        demands.append(requests)
        return Resources(_takes(requests, per_byte), _gpus(requests))

    more = () if own is None else own.observe(demand)
    offers = {
        name: Resources(_offers(free_capacity, demands, per_byte), _gpus(free_capacity))
        for name, free_capacity in free.items()
    }
    # Where no node may have a coordinator, there is no capacity for a parameter server.
    leaderless = {job_id: nodes_of for job_id, nodes_of in leader_reach.items() if not nodes_of}
    limited = [limited_to_nodes(job, offers, reach, ps_reach | leaderless) for job in more]
    targets = [_limited_to(_job(each, per_byte, unix_seconds), each, offers, reach) for each in members]
    state = ClusterState(
        unix_seconds,
        tuple(Node(node.name, offers[node.name], node.gpu_type) for node in nodes if node.name in offers),
        tuple(sorted([*targets, *limited], key=lambda job: job.submit_time_seconds)),  # what is fair is by arrival
        slot_seconds,
        CapacityMode.NODES,
    )
    kinds = {frozenset(requests.items()): requests for requests in demands}
    return Observed(
        state,
        {member.job_id: member for member in members},
        left_out,
        frozenset(over),
        reach,
        ps_reach,
        free_capacity=CapacityLeft(free, frozenset(choices), tuple(kinds.values())),
    )


def targets_alone(about: Observed, decision: Decision) -> Observed:
    """What was observed of targets, without the capacity that other jobs have, or were given."""
    everywhere = frozenset(node.node_id for node in about.state.nodes)
    taken: dict[frozenset[str], Resources] = {}
    for job in about.state.jobs:
        if job.job_id not in about.members:
            most = job.current.most(decision.of(job.job_id))
            for reach_of, more in (
                (about.reach, job.worker_demand * most.workers),
                (about.ps_reach, job.ps_demand * most.ps),
            ):
                own = reach_of.get(job.job_id, everywhere)
                taken[own] = taken.get(own, Resources(0)) + more
    users = Counter(node for job_id, each in about.reach.items() if job_id in about.members for node in each)
    left = {node.node_id: node.capacity for node in about.state.nodes}
    for own in sorted(taken, key=lambda each: (len(each), sorted(each))):
        # Where it may be, and there first from what the fewest targets have to have.
        for name in sorted(left, key=lambda each: (each not in own, users[each])):
            here = Resources(min(left[name].cpu_milli, taken[own].cpu_milli), min(left[name].gpu, taken[own].gpu))
            left[name], taken[own] = left[name] - here, taken[own] - here
    nodes = [replace(node, capacity=left[node.node_id]) for node in about.state.nodes]
    jobs = tuple(job for job in about.state.jobs if job.job_id in about.members)
    reach = {job_id: each for job_id, each in about.reach.items() if job_id in about.members}
    return replace(about, state=replace(about.state, nodes=tuple(nodes), jobs=jobs), reach=reach, ps_reach={})


def ended_since(
    decided: frozenset[tuple[str, float]],
    targets: Iterable[ElasticTarget],
    found: Mapping[tuple[str, str, str], TargetFacts],
) -> frozenset[str]:
    """Uids of objects that are over, and that an earlier life of the agent decided about: their ends are to be told.

    `decided` are ids of the jobs in its last decision, and when they were submitted.
    """
    ended = set()
    for target in targets:
        facts = found.get(target.object_key)
        if facts is None or not facts.is_over:
            continue
        if (target.job_id, seconds_of(facts.created)) in decided:
            ended.add(facts.uid)
    return frozenset(ended)


def _problem(target: ElasticTarget, facts: TargetFacts | None) -> str:
    ref = target.ref
    if target.problem:
        return target.problem
    if (ref.api_version, ref.kind) != (JOBS.api_version, JOBS.kind):
        return f"spec.targetRef is a {ref.kind} of {ref.api_version}: use {JOBS.api_version} {JOBS.kind}"
    if facts is None:
        return f"there is no {ref.kind} {ref.name} in namespace {target.namespace}"
    if facts.is_over:
        return f"{ref.kind} {ref.name} is over"
    obstacle = facts.obstacle
    if not obstacle and facts.requests is None:
        obstacle = "the requests of its pods cannot be read"
    elif not obstacle and not _takes_any(facts.requests or {}):
        obstacle = "its pods request neither CPU nor GPUs, so that nothing says what one takes"
    return f"{ref.kind} {ref.name}: {obstacle}" if obstacle else ""


def _takes_any(requests: Amounts) -> bool:
    return requests.get(CPU, 0) > 0 or _gpus(requests) > 0


def running_workers(pods: Iterable[PodFacts]) -> dict[str, int]:
    """Running pods of each owner, by its uid; an owner with a pod that is leaving is left out."""
    found: Counter[str] = Counter()
    leaving = set()
    for pod in pods:
        found[pod.owner] += pod.phase == "Running"
        if pod.is_terminating:
            leaving.add(pod.owner)
    return {uid: count for uid, count in found.items() if uid and uid not in leaving}


def stated_progress(
    target: ElasticTarget, facts: TargetFacts, reading: Reading | None = None
) -> tuple[float | None, float | None]:
    """Samples done and in all; None where they are not said, or make no sense."""
    if target.progress is None:
        return None, None
    if target.progress.endpoint is not None:
        return (None, None) if reading is None else (reading.samples, reading.total)
    done = _number(facts.annotations.get(target.progress.samples))
    total = _number(facts.annotations.get(target.progress.total)) if target.progress.total else None
    # More than all was done: one of the two is wrong, and what it has done is what it counted.
    return done, total if done is not None and total is not None and total >= done else None


def _number(text: str | None) -> float | None:
    try:
        value = math.nan if text is None else float(text)
    except ValueError:
        return None
    return value if 0.0 <= value <= _MOST_SAMPLES else None


def _job(member: ObservedTarget, per_byte: float, unix_seconds: float) -> Job:
    target, facts = member.target, member.facts
    done = member.samples or 0.0
    total = member.total_samples
    shown = max(2 * done, _UNKNOWN_SAMPLES) if total is None else total
    began = seconds_of(facts.started)
    return Job(
        job_id=member.job_id,
        job_type=target.model_type,
        submit_time_seconds=seconds_of(facts.created) or unix_seconds,
        worker_demand=Resources(_takes(facts.requests or {}, per_byte), _gpus(facts.requests or {})),
        ps_demand=Resources(0),
        # An "epoch" is a sample here: nobody says more.
        samples_per_epoch=1.0,
        total_epochs=shown,
        remaining_epochs=max(shown - done, _LEAST_REMAINING),
        requested=SUSPENDED if facts.is_over else Allocation(min(max(facts.requested, target.least), target.most), 0),
        max_workers=0 if facts.is_over else target.most,
        max_ps=0,
        run_seconds=max(0.0, unix_seconds - began) if began and facts.workers else 0.0,
        current=SUSPENDED if facts.is_over else Allocation(facts.workers, 0),
        kind=JobKind.ALLREDUCE,
        min_workers=target.least,
        min_ps=0,
        work_known=total is not None,
    )


def _limited_to(job: Job, member: ObservedTarget, offers: Mapping[str, Resources], reach: Reach) -> Job:
    """A job that can grow no further than its nodes have capacity, and not at all while a pod of it does not start."""
    most = job.max_workers
    if job.job_id in reach:
        fitting = seats((offers[node] for node in reach[job.job_id]), job.worker_demand)
        most = min(most, max(fitting if fitting >= job.min_workers else 0, job.current.workers))
    if member.trouble and job.current.workers:
        most = min(most, job.current.workers)
    if most == job.max_workers:
        return job
    requested = Allocation(min(job.requested.workers, most), 0)
    return replace(job, max_workers=most, min_workers=min(job.min_workers, most), requested=requested)


def _milli_per_byte(allocatable: Iterable[Amounts]) -> float:
    """Millicores that stand for a byte, by what nodes have, whatever is free; 0 where nothing is known of memory."""
    sizes = list(allocatable)
    memory = sum(size.get(MEMORY, 0) for size in sizes)
    return sum(size.get(CPU, 0) for size in sizes) / memory if memory else 0.0


def _takes(requests: Amounts, per_byte: float) -> int:
    return max(1, requests.get(CPU, 0), math.ceil(requests.get(MEMORY, 0) * per_byte))


def _offers(free_capacity: Amounts, demands: Iterable[Amounts], per_byte: float) -> int:
    """Largest share of a node for tasks together, so that neither CPU nor memory runs out whichever of them come.

    For each of the two the task counts that asks for the most of it beside its share.
    """
    cpu, memory = free_capacity.get(CPU, 0), free_capacity.get(MEMORY, 0)
    most = None
    for requests in demands:
        takes = _takes(requests, per_byte)
        for has, ask in ((cpu, requests.get(CPU, 0)), (memory, requests.get(MEMORY, 0) if per_byte else 0)):
            if ask > 0:
                fits = has * takes // ask
                most = fits if most is None else min(most, fits)
    return cpu if most is None else most


def _gpus(amounts: Amounts) -> int:
    """Of all kinds together: a cluster's nodes may have several."""
    return sum(amount for name, amount in amounts.items() if is_counted(name))


def seconds_of(time: Any) -> float:
    """Unix seconds of a time as the API writes it; 0 of none."""
    try:
        return datetime.fromisoformat(str(time)).timestamp() if time else 0.0
    except ValueError:
        return 0.0
