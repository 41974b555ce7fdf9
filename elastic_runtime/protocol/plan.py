"""The plan of a job, which its coordinator publishes and everybody acts on: who computes, who owns what, from when on.

A `View` is the whole of it; a newer one replaces an older one. A `Timeline` answers the one question that workers
and parameter servers ask of it: what holds at step t?

A *change* takes effect at a *clock*, a number of a step, the same for all; its stages follow at the steps after it
(rolling migration: some blocks flip owner at each). A *generation* begins at a checkpoint; whatever was sent in an
older one is dropped.

Source: DL2 §5 (scaling clock). Deviation: blocks move in stages at successive clocks while training goes on, where the
paper suspends all workers at one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from foundation.python310 import StrEnum


class TaskRole(StrEnum):
    """What a task does in the job."""

    WORKER = "worker"
    SERVER = "server"


class JobPhase(StrEnum):
    """Where a job is."""

    STARTING = "starting"
    RUNNING = "running"
    RESIZING = "resizing"
    SUSPENDING = "suspending"
    SUSPENDED = "suspended"
    RECOVERING = "recovering"
    FINISHED = "finished"
    FAILED = "failed"


ENDED = frozenset({JobPhase.FINISHED, JobPhase.FAILED})
OVER = ENDED | {JobPhase.SUSPENDED}
"""Phases in which a job needs none of its tasks."""


@dataclass(frozen=True, slots=True)
class Member:
    """A registered task: its incarnation tells a restarted process from the one before."""

    task: str
    role: TaskRole
    incarnation: int
    address_json: str


@dataclass(frozen=True, slots=True)
class ChangeStage:
    """What happens at one step of a change: blocks get new owners; the list of workers may be replaced.

    `replicas`: blocks whose second holder changes; "": there is none from then on.
    """

    moves: Mapping[int, str] = field(default_factory=dict)
    workers: tuple[str, ...] | None = None
    replicas: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """Stage i takes effect at step `clock + i`.

    Attributes:
        number: counts a job's changes; never used twice.
        clock: the first step that the change holds for.
        checkpoint: every PS writes its blocks as they are at version `clock`.
        halt: nobody begins step `clock`; members end once their checkpoint is written.
        barrier: workers wait at the clock until the change is committed (stop-the-world).
    """

    number: int
    clock: int
    stages: tuple[ChangeStage, ...] = ()
    checkpoint: bool = False
    halt: bool = False
    barrier: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Who computes and who owns at one step: slice k of the batch is `workers[k]`'s, block b is `owners[b]`'s.

    `after` is the number of the newest change that the plan contains (0: none). `replicas[b]` applies every step to
    block b too and is ready to take it over ("": nobody); the tuple is empty if no block has a second holder.
    """

    workers: tuple[str, ...]
    owners: tuple[str, ...]
    after: int = 0
    replicas: tuple[str, ...] = ()

    def slices_of(self, worker: str) -> tuple[int, ...]:
        """The slices that a worker computes; empty if it is not in the plan."""
        return tuple(index for index, name in enumerate(self.workers) if name == worker)

    def blocks_of(self, server: str) -> tuple[int, ...]:
        """The blocks that a PS owns."""
        return tuple(block for block, owner in enumerate(self.owners) if owner == server)

    def replica(self, block: int) -> str:
        """The second holder of a block; empty without one."""
        return self.replicas[block] if self.replicas else ""

    def holders(self, block: int) -> tuple[str, ...]:
        """Who applies the steps to a block: its owner, then its replica."""
        replica = self.replica(block)
        return (self.owners[block], replica) if replica else (self.owners[block],)

    def all_blocks_of(self, server: str) -> tuple[int, ...]:
        """The blocks that a PS owns or is the replica of."""
        if not self.replicas:
            return self.blocks_of(server)
        return tuple(block for block in range(len(self.owners)) if server in self.holders(block))

    @property
    def servers(self) -> tuple[str, ...]:
        """Everybody who holds a block, each once."""
        return tuple(name for name in dict.fromkeys((*self.owners, *self.replicas)) if name)


@dataclass(frozen=True, slots=True)
class View:
    """Everything that members have to know; see the module's head.

    `lost_servers`: PSs that plans of this generation still name, and that are no more: the other holder of a block is
    its owner from then on, at whatever step. `notice`: a line for people, of this start or resume of the job.
    `ends_at`: how many steps the job has, as a worker's script has ended it: what was begun beyond is never applied.
    """

    number: int
    generation: int
    phase: JobPhase
    start_step: int
    start_checkpoint: str
    start_plan: Plan
    changes: tuple[Change, ...] = ()
    proposal: Change | None = None
    members: tuple[Member, ...] = ()
    committed: int = 0
    substitutes: Mapping[str, str] = field(default_factory=dict)
    initialiser: str = ""
    wanted: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    failure: str = ""
    lost_servers: tuple[str, ...] = ()
    notice: str = ""
    ends_at: int | None = None

    def member(self, task: str) -> Member | None:
        """The task's registration, if it has one."""
        return next((member for member in self.members if member.task == task), None)


class Timeline:
    """The plans of one generation, step by step; `replicated`: blocks have, or had, a second holder.

    Raises:
        ValueError: changes out of order, or overlapping: stages of one may not reach into the next.
    """

    def __init__(self, view: View) -> None:
        self.generation = view.generation
        self.start_step = view.start_step
        self.changes = view.changes
        self.lost = frozenset(view.lost_servers)
        self.replicated = bool(view.start_plan.replicas) or any(s.replicas for c in view.changes for s in c.stages)
        self._substitutes = dict(view.substitutes)
        self._before: dict[int, Plan] = {}
        self._steps = [view.start_step]
        self._plans = [self._resolved(view.start_plan)]
        plan = view.start_plan
        for change in view.changes:
            if change.clock < self._steps[-1]:
                raise ValueError(f"change {change.number} at step {change.clock} begins before step {self._steps[-1]}")
            self._before[change.number] = plan
            for offset, stage in enumerate(change.stages or (ChangeStage(),)):
                plan = _after(plan, change.number, stage)
                self._steps.append(change.clock + offset)
                self._plans.append(self._resolved(plan))

    def at(self, step: int) -> Plan:
        """The plan that holds at `step`.

        Raises:
            ValueError: the step lies before the generation's first.
        """
        if step < self.start_step:
            raise ValueError(f"step {step} lies before step {self.start_step}, where this generation began")
        return self._plans[bisect_right(self._steps, step) - 1]

    def changes_at(self, step: int) -> bool:
        """Whether a stage of a change takes effect at `step`."""
        index = bisect_right(self._steps, step) - 1
        return index > 0 and self._steps[index] == step

    def first_step_of(self, task: str) -> int | None:
        """The first step of which this worker computes a slice; None if no plan names it yet."""
        return next((step for step in self._steps if self.at(step).slices_of(task)), None)

    def before(self, change: Change) -> Plan:
        """The plan that a confirmed change changes, with the lost servers that it still names."""
        return self._before[change.number]

    def halts_at(self) -> int | None:
        """The step that nobody begins, if there is one."""
        return next((change.clock for change in self.changes if change.halt), None)

    def change(self, number: int) -> Change | None:
        """A confirmed change by its number."""
        return next((change for change in self.changes if change.number == number), None)

    @property
    def newest(self) -> int:
        """Number of the newest confirmed change; 0 without one."""
        return self.changes[-1].number if self.changes else 0

    def _resolved(self, plan: Plan) -> Plan:
        if self._substitutes:
            plan = replace(plan, workers=tuple(self._standing_in(name) for name in plan.workers))
        return without_lost(plan, self.lost)

    def _standing_in(self, name: str) -> str:
        seen = {name}
        while name in self._substitutes and self._substitutes[name] not in seen:
            name = self._substitutes[name]
            seen.add(name)
        return name


def without_lost(plan: Plan, lost: frozenset[str]) -> Plan:
    """The plan as it holds without some servers: the other holder of a block is its owner."""
    if not lost or lost.isdisjoint(plan.servers):
        return plan
    holders = [[name for name in plan.holders(block) if name not in lost] for block in range(len(plan.owners))]
    owners = tuple(names[0] if names else plan.owners[block] for block, names in enumerate(holders))
    return replace(plan, owners=owners, replicas=_tidy(names[1] if len(names) > 1 else "" for names in holders))


def _after(plan: Plan, number: int, stage: ChangeStage) -> Plan:
    owners: Sequence[str] = plan.owners
    if stage.moves:
        owners = list(owners)
        for block, server in stage.moves.items():
            owners[block] = server
    replicas = plan.replicas
    if stage.replicas:
        changed = list(plan.replicas or [""] * len(owners))
        for block, server in stage.replicas.items():
            changed[block] = server
        replicas = _tidy(changed)
    return Plan(plan.workers if stage.workers is None else stage.workers, tuple(owners), number, replicas)


def _tidy(replicas: Iterable[str]) -> tuple[str, ...]:
    """No list at all where nobody is in it."""
    kept = tuple(replicas)
    return kept if any(kept) else ()


@dataclass(frozen=True, slots=True)
class Transfer:
    """What a change makes of the holders of one block, from step `at` on.

    Source: DL2 §5 (blocks move from one PS to another). Deviation: a block may have two holders, of which one may stay.

    Attributes:
        leaving: have it until then.
    """

    block: int
    at: int
    coming: tuple[str, ...]
    leaving: tuple[str, ...]
    staying: tuple[str, ...]

    def source(self, target: str, lost: frozenset[str] = frozenset()) -> str:
        """Who sends the block to one that gets it; empty if all who had it are lost.

        Who leaves keeps its copy as it was at the flip, so is asked first; two who get the block ask different ones.
        """
        turn = self.coming.index(target) % max(len(self.leaving), 1)
        order = (*self.leaving[turn:], *self.leaving[:turn], *self.staying)
        return next((name for name in order if name not in lost), "")


def transfers(change: Change, before: Plan) -> list[Transfer]:
    """The blocks whose holders a change changes, stage by stage; a block whose holders swap their parts is not one.

    Args:
        before: the plan that it changes, with all servers that it names, lost ones too.
    """
    found = []
    holders: dict[int, tuple[str, str]] = {}
    for offset, stage in enumerate(change.stages):
        for block in dict.fromkeys((*stage.moves, *stage.replicas)):
            owner, replica = holders.get(block) or (before.owners[block], before.replica(block))
            holders[block] = (stage.moves.get(block, owner), stage.replicas.get(block, replica))
            old, new = _named(owner, replica), _named(*holders[block])
            coming = tuple(name for name in new if name not in old)
            leaving = tuple(name for name in old if name not in new)
            staying = tuple(name for name in old if name in new)
            if coming or leaving:
                found.append(Transfer(block, change.clock + offset, coming, leaving, staying))
    return found


def _named(owner: str, replica: str) -> tuple[str, ...]:
    return (owner, replica) if replica else (owner,)
