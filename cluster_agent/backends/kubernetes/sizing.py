"""Sizing: which changes of size a decision comes to, and whether there is room now for one that grows.

Pure. Room is what kube-scheduler would count at this moment, node by node: pods that left and are not gone yet still
have theirs, and pods that a job asked for and that are on no node yet have been promised theirs. So a job that is to
have the room of another waits until it is there, and no room is given twice, whoever asked for it and when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cluster_agent.backends.kubernetes.observation import Member, Observed
from cluster_agent.kubernetes.capacity import NodeFacts, PodFacts, free_amounts, times
from cluster_agent.kubernetes.targets.target_kind import TargetFacts

_ANYWHERE = ({"operator": "Exists"},)


@dataclass(frozen=True, slots=True)
class Change:
    """A job that is to have another size."""

    member: Member
    before: int
    after: int

    @property
    def grows(self) -> bool:
        """Whether it takes room."""
        return self.after > self.before

    @property
    def words(self) -> str:
        """For people."""
        if not self.before:
            return f"start with {self.after}"
        return f"{self.after} workers rather than {self.before}"


def changes_of(about: Observed, sizes: Mapping[str, int]) -> list[Change]:
    """What is to change: what gives room first, then jobs that have nothing yet, then those that grow.

    A job that runs is never stopped: with nothing it would lose its pods.
    """
    found = [
        Change(member, member.facts.workers, sizes[job_id])
        for job_id, member in about.members.items()
        if sizes.get(job_id, 0) not in (0, member.facts.workers)
    ]
    return sorted(found, key=lambda each: (each.grows, each.before > 0))


@dataclass(frozen=True, slots=True)
class Holder:
    """A job and the workers that it may have: what it asks for, or more where that is not known for certain."""

    facts: TargetFacts
    workers: int


class Room:
    """What is free now, less what is promised.

    Args:
        pods: all that have not ended, whoever's.
        holders: all jobs that are looked after, also those of which only advice is given.
    """

    def __init__(self, nodes: Iterable[NodeFacts], pods: Iterable[PodFacts], holders: Iterable[Holder]) -> None:
        nodes, pods = list(nodes), list(pods)
        self._nodes = {node.name: node for node in nodes}
        self._free = free_amounts(nodes, pods, _ANYWHERE)
        here = Counter(pod.owner for pod in pods if pod.node and not pod.is_terminating)
        there_is = Counter(pod.owner for pod in pods if pod.node)
        self._full_for: set[tuple[frozenset[tuple[str, int]], str]] = set()
        self._is_coming = False
        for holder in holders:
            uid = holder.facts.uid
            self.take(holder.facts, holder.workers - here[uid], partly=True)
            self._is_coming = self._is_coming or there_is[uid] > holder.workers or there_is[uid] > here[uid]

    @property
    def is_coming(self) -> bool:
        """Whether pods of these jobs are about to leave."""
        return self._is_coming

    def take(self, facts: TargetFacts, workers: int, *, partly: bool = False) -> int:
        """Take room for so many more workers of a job.

        Args:
            partly: take what there is where there is too little; else nothing is taken then.

        Returns:
            For how many there was room, and room was taken if that is enough.
        """
        if workers <= 0 or facts.asks is None:
            return 0
        places = self._places(facts, workers)
        if len(places) == workers or partly:
            for node in places:
                for name, amount in facts.asks.items():
                    if name in self._free[node]:
                        self._free[node][name] -= amount
        return len(places)

    def _places(self, facts: TargetFacts, workers: int) -> list[str]:
        """A node for each worker, as far as there are any."""
        found: list[str] = []
        asks = facts.asks or {}
        # Room only becomes less: what no node had for some pods, none has for others like them.
        alike = (frozenset(asks.items()), facts.choice.key)
        if alike in self._full_for:
            return found
        for node, free in self._free.items():
            fitting = times(asks, free)
            if fitting and facts.choice.allows(self._nodes[node]):
                found += [node] * min(workers - len(found), fitting)
                if len(found) == workers:
                    break
        if not found:
            self._full_for.add(alike)
        return found


def fitting_size(room: Room, change: Change, *, is_last: bool) -> int:
    """The size that a job can have now of the one that it is to have; what it takes is taken. 0: it has to wait.

    Args:
        is_last: no more room is coming, or nobody waits for it any longer: less than all is better than nothing.
    """
    facts = change.member.facts
    if not change.grows:
        return change.after
    found = room.take(facts, change.after - change.before)
    if found == change.after - change.before:
        return change.after
    least = max(change.before + 1, change.member.target.least)
    if not is_last or change.before + found < least:
        return 0
    room.take(facts, found)
    return change.before + found
