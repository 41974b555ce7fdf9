"""Observation of a Kubernetes cluster: the targets that a decision is about, and the room that they share.

Pure: from what is kept of nodes, pods, targets and the objects that they point at. What other pods take is not there;
what the targets' own pods take is, since that is what is being decided about.

Deviation: policies know CPU and GPUs only. Memory is counted as CPU, at the ratio of what the nodes have of both: a
task takes the larger of the two, a node offers the smaller. Nothing is promised that is not there; some memory or CPU
may stay unused where tasks differ much in what they need more of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from cluster_agent.backends.kubernetes.scrapes import Reading
from cluster_agent.kubernetes.capacity import CPU, Amounts, NodeFacts, PodFacts, free_amounts
from cluster_agent.kubernetes.targets.elastic_target import ElasticTarget
from cluster_agent.kubernetes.targets.target_kind import TargetFacts
from policy_net.domain import SUSPENDED, Allocation, CapacityMode, ClusterState, Job, JobKind, Node, Resources

MEMORY: Final = "memory"
GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915")
"""Resource names of GPUs; a cluster's nodes may have several kinds."""
_LEAST_REMAINING = 1e-3
_UNKNOWN_SAMPLES = 10_000.0
"""Of a job that says nothing of its work, before it has said how far it is."""
_MOST_SAMPLES = 1e15


@dataclass(frozen=True, slots=True)
class Member:
    """A target that a decision is about, and the object that it points at.

    Attributes:
        reading: of its own metrics, where those say how far it is.
    """

    target: ElasticTarget
    facts: TargetFacts
    samples: float | None
    total_samples: float | None
    reading: Reading | None = None

    @property
    def job_id(self) -> str:
        """Namespace and name of the target."""
        return f"{self.target.namespace}/{self.target.name}"


@dataclass(frozen=True, slots=True)
class Observed:
    """What there is to decide about.

    Attributes:
        left_out: why each other target is in no decision, in a line, by its namespace and name.
    """

    state: ClusterState
    members: Mapping[str, Member]
    left_out: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Seen:
    """What is kept of a cluster, from its caches.

    Attributes:
        found: the objects that targets point at, by kind, namespace and name.
        readings: of jobs' own metrics, by uid of the object.
    """

    nodes: Iterable[NodeFacts]
    pods: Iterable[PodFacts]
    targets: Iterable[ElasticTarget]
    found: Mapping[tuple[str, str, str], TargetFacts]
    readings: Mapping[str, Reading] = field(default_factory=dict)


def observed(
    seen: Seen,
    kinds: frozenset[str],
    unix_seconds: float,
    slot_seconds: float,
    untold: frozenset[str] = frozenset(),
) -> Observed:
    """What a policy is asked about.

    Args:
        kinds: of objects that targets may point at, as `group/version Kind`.
        untold: uids of objects that were in an earlier decision, and of which nobody was told yet that they are over:
            they are in one more, in which they have nothing and may have nothing.
    """
    members: list[Member] = []
    left_out: dict[str, str] = {}
    taken: dict[str, str] = {}
    for target in sorted(seen.targets, key=lambda each: (each.created, each.namespace, each.name)):
        job_id = f"{target.namespace}/{target.name}"
        facts = seen.found.get((target.ref.kind, target.namespace, target.ref.name))
        problem = _problem(target, facts, kinds)
        if not problem and facts is not None and facts.uid in taken:
            problem = f"ElasticTarget {taken[facts.uid]} points at {target.ref.kind} {target.ref.name} already"
        if problem:
            left_out[job_id] = problem
        if facts is None or (problem and not (facts.is_over and facts.uid in untold - set(taken))):
            continue
        taken[facts.uid] = target.name
        reading = seen.readings.get(facts.uid)
        members.append(Member(target, facts, *said_progress(target, facts, reading), reading))
    pods = list(seen.pods)
    owners = set(taken)
    nodes = list(seen.nodes)
    free: dict[str, dict[str, int]] = {}
    # A node counts where any target's pods may come to it. (Which pods come to which is kube-scheduler's business.)
    for tolerations in {repr(member.facts.tolerations): member.facts.tolerations for member in members}.values():
        free |= free_amounts(nodes, pods, tolerations, lambda pod: pod.owner in owners)
    per_byte = _milli_per_byte(free.values())
    state = ClusterState(
        unix_seconds,
        tuple(
            Node(node.name, Resources(_offers(free[node.name], per_byte), _gpus(free[node.name])), node.gpu_type)
            for node in nodes
            if node.name in free
        ),
        tuple(_job(member, per_byte, unix_seconds) for member in members),
        slot_seconds,
        CapacityMode.NODES,
    )
    return Observed(state, {member.job_id: member for member in members}, left_out)


def ended_since(
    asked: frozenset[tuple[str, float]],
    targets: Iterable[ElasticTarget],
    found: Mapping[tuple[str, str, str], TargetFacts],
) -> frozenset[str]:
    """Uids of objects that are over, and that an earlier life of the agent decided about: their ends are to be told.

    Args:
        asked: ids of the jobs in its last decision, and when they were submitted.
    """
    ended = set()
    for target in targets:
        facts = found.get((target.ref.kind, target.namespace, target.ref.name))
        if facts is None or not facts.is_over:
            continue
        if (f"{target.namespace}/{target.name}", seconds_of(facts.created)) in asked:
            ended.add(facts.uid)
    return frozenset(ended)


def _problem(target: ElasticTarget, facts: TargetFacts | None, kinds: frozenset[str]) -> str:
    ref = target.ref
    if target.problem:
        return target.problem
    if f"{ref.api_version} {ref.kind}" not in kinds:
        return f"spec.targetRef is a {ref.kind} of {ref.api_version}: use {' or '.join(sorted(kinds))}"
    if facts is None:
        return f"there is no {ref.kind} {ref.name} in namespace {target.namespace}"
    if facts.is_over:
        return f"{ref.kind} {ref.name} is over"
    obstacle = facts.obstacle
    if not obstacle and facts.asks is None:
        obstacle = "the requests of its pods cannot be read"
    elif not obstacle and not _takes_any(facts.asks or {}):
        obstacle = "its pods request neither CPU nor GPUs, so that nothing says what one takes"
    return f"{ref.kind} {ref.name}: {obstacle}" if obstacle else ""


def _takes_any(asks: Amounts) -> bool:
    return asks.get(CPU, 0) > 0 or _gpus(asks) > 0


def said_progress(
    target: ElasticTarget, facts: TargetFacts, reading: Reading | None = None
) -> tuple[float | None, float | None]:
    """Samples done and in all; None where they are not said, or are no numbers that anything could follow from."""
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


def _job(member: Member, per_byte: float, unix_seconds: float) -> Job:
    target, facts = member.target, member.facts
    done = member.samples or 0.0
    total = member.total_samples
    shown = max(2 * done, _UNKNOWN_SAMPLES) if total is None else total
    began = seconds_of(facts.started)
    return Job(
        job_id=member.job_id,
        job_type=target.model_type,
        submit_time_seconds=seconds_of(facts.created) or unix_seconds,
        worker_demand=Resources(_takes(facts.asks or {}, per_byte), _gpus(facts.asks or {})),
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


def _requested(member: Member) -> Allocation:
    """What its author asked for: nobody else sets it."""
    return Allocation(min(max(member.facts.workers, member.target.least), member.target.most), 0)


def _milli_per_byte(free: Iterable[Amounts]) -> float:
    """Millicores that stand for a byte; 0 where nothing is known of memory."""
    rooms = list(free)
    memory = sum(room.get(MEMORY, 0) for room in rooms)
    return sum(room.get(CPU, 0) for room in rooms) / memory if memory else 0.0


def _takes(asks: Amounts, per_byte: float) -> int:
    return max(1, asks.get(CPU, 0), math.ceil(asks.get(MEMORY, 0) * per_byte))


def _offers(room: Amounts, per_byte: float) -> int:
    cpu = room.get(CPU, 0)
    return min(cpu, math.floor(room.get(MEMORY, 0) * per_byte)) if per_byte else cpu


def _gpus(amounts: Amounts) -> int:
    return sum(amounts.get(name, 0) for name in GPUS)


def seconds_of(time: Any) -> float:
    """Unix seconds of a time as the API writes it; 0 of none."""
    try:
        return datetime.fromisoformat(str(time)).timestamp() if time else 0.0
    except ValueError:
        return 0.0
