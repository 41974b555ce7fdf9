"""Spread of an answer over assumptions: how jobs train, what models they are, how they can be resized.

Every assumption is first changed by itself, then together with the others, up to a number of replays that follows from
the workload alone, so that the same command gives the same range everywhere. The compiled twin simulates `set`, a tenth
of a second for a thousand jobs. A queue of fixed sizes is simulated anew only where it can differ: where GPUs alone
decide what fits, it is the same for every model and kind of job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from policy_net.domain import JobKind, SpeedModel
from policy_net.errors import PolicyNetError
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.metrics import alone_seconds
from policy_net.laboratory.workloads.workload import JobKindChoice, Workload

World = tuple[Workload, Environment]
STALLS_SECONDS = ((0.0, 0.0), (30.0, 60.0), (120.0, 300.0))
"""(resize, resume): none; a checkpoint that is written and read; a new container and a large model as well."""
KINDS = (JobKindChoice.ALLREDUCE, JobKindChoice.PS, JobKindChoice.ASYNC)
SEEDS = 3
"""Draws of the models, from the given seed on."""
ELASTIC_SHARES = (1.0, 0.5)
"""Shares of the jobs that can be resized, which no log says."""
COMPILED_JOBS, OTHER_JOBS = 60_000, 3_000
"""Jobs that are replayed again for a range, all cases together, by the twin and by the policy itself: under a minute on
one core, mostly."""
FIXED_QUEUES = ("fifo", "fifo-backfill", "fifo-easy")
"""Policies that neither resize nor suspend, and look at nothing but sizes, arrivals and declared durations."""


@dataclass(frozen=True, slots=True)
class AssumedCase:
    """One set of assumptions."""

    kind: JobKindChoice
    seed: int
    stall_seconds: tuple[float, float]
    elastic_share: float = 1.0


@dataclass(frozen=True)
class Assumptions:
    """Values of each assumption, one where the user stated it; `base` is the case of the answer itself."""

    base: AssumedCase
    kinds: tuple[JobKindChoice, ...] = KINDS
    stalls_seconds: tuple[tuple[float, float], ...] = STALLS_SECONDS
    seeds: int = SEEDS
    elastic_shares: tuple[float, ...] = (1.0,)

    @property
    def each(self) -> Mapping[str, tuple[AssumedCase, ...]]:
        """By assumption, the cases that change it alone, the base first; those with one value are left out."""
        base = self.base
        values: tuple[tuple[str, str, Iterable[Any]], ...] = (
            (KIND, "kind", self.kinds),
            (MODELS, "seed", range(base.seed, base.seed + self.seeds)),
            (STALLS, "stall_seconds", self.stalls_seconds),
            (ELASTIC, "elastic_share", self.elastic_shares),
        )
        found = {}
        for name, field_name, of_name in values:
            others = (value for value in of_name if value != getattr(base, field_name))
            found[name] = (base, *(replace(base, **{field_name: value}) for value in others))
        return {name: cases for name, cases in found.items() if len(cases) > 1}

    def cases(self) -> Iterator[AssumedCase]:
        """All cases but the base: every assumption by itself, then the others."""
        seen = {self.base}
        alone = [case for of_name in self.each.values() for case in of_name]
        seeds = range(self.base.seed, self.base.seed + self.seeds)
        together = (
            AssumedCase(*values) for values in product(self.kinds, seeds, self.stalls_seconds, self.elastic_shares)
        )
        for case in (*alone, *together):
            if case not in seen:
                seen.add(case)
                yield case


KIND, MODELS, STALLS = "how the jobs train", "which models they are", "how long a resize stops them"
ELASTIC = "how many can be resized"


@dataclass(frozen=True)
class JctSpread:
    """Average completion times over today's, less 1, by case.

    Attributes:
        changes: at least the base's.
        planned: number of all cases, with the base.
        failed: reason why the first case that failed could not be replayed.
    """

    assumptions: Assumptions
    changes: Mapping[AssumedCase, float]
    planned: int
    failed: str = ""

    @property
    def least(self) -> float:
        """The largest saving: the most negative change."""
        return min(self.changes.values())

    @property
    def most(self) -> float:
        """The smallest saving, or the largest loss."""
        return max(self.changes.values())

    @property
    def moved_most_by(self) -> tuple[str, tuple[tuple[AssumedCase, float], ...]] | None:
        """The assumption that moves the answer most when it alone is changed, and what to; None if none was."""
        found: list[tuple[float, str, tuple[tuple[AssumedCase, float], ...]]] = []
        for name, cases in self.assumptions.each.items():
            known = tuple((case, self.changes[case]) for case in cases if case in self.changes)
            if len(known) > 1:
                values = [change for _, change in known]
                found.append((max(values) - min(values), name, known))
        if not found:
            return None
        _, name, known = max(found, key=lambda entry: entry[0])
        return name, known


@dataclass
class CaseReplays:
    """Simulation of cases.

    Attributes:
        world: the workload and its cluster under a case.
        average_seconds: average completion time in a world under a policy.
        speeds: the simulator's truth.
        places_matter: whether the places of tasks change speeds.
    """

    world: Callable[[AssumedCase], World]
    average_seconds: Callable[[World, str], float]
    speeds: SpeedModel
    places_matter: bool = False
    _known: dict[object, float] = field(default_factory=dict)

    def today_seconds(self, world: World, policy: str) -> float:
        """Today's average; a queue of fixed sizes is not simulated twice where nothing that it depends on differs."""
        key = self._what_today_depends_on(world, policy)
        if key is None:
            return self.average_seconds(world, policy)
        if key not in self._known:
            self._known[key] = self.average_seconds(world, policy)
        return self._known[key]

    def remember(self, world: World, policy: str, seconds: float) -> None:
        """Keep an average that was simulated before."""
        key = self._what_today_depends_on(world, policy)
        if key is not None:
            self._known[key] = seconds

    def _what_today_depends_on(self, world: World, policy: str) -> object | None:
        if self.places_matter or policy not in FIXED_QUEUES:
            return None
        return _what_a_queue_sees(world, self.speeds)


@dataclass(frozen=True, slots=True)
class SimulatedBase:
    """The base case's world, the two policies, and their average completion times."""

    world: World
    today: str
    proposed: str
    today_seconds: float
    proposed_seconds: float


def spread_of(
    answer: SimulatedBase,
    assumptions: Assumptions,
    replays: CaseReplays,
    most: int,
    on_case: Callable[[float], None] | None = None,
) -> JctSpread:
    """Replay today's and the proposed policy under at most `most` other cases.

    Args:
        on_case: called after each case with the share that is done.
    """
    cases = list(assumptions.cases())
    changes = {assumptions.base: answer.proposed_seconds / answer.today_seconds - 1}
    replays.remember(answer.world, answer.today, answer.today_seconds)
    failed = ""
    chosen = cases[: max(most, 0)]
    for done, case in enumerate(chosen, start=1):
        try:
            world = replays.world(case)
            proposed = replays.average_seconds(world, answer.proposed)
            changes[case] = proposed / replays.today_seconds(world, answer.today) - 1
        except PolicyNetError as error:
            failed = failed or str(error)
        if on_case is not None:
            on_case(done / len(chosen))
    return JctSpread(assumptions, changes, 1 + len(cases), failed)


def usual_cases(jobs: int, *, compiled: bool) -> int:
    """Cases that are replayed by default: with the twin at least all that change one assumption."""
    return max(COMPILED_JOBS // jobs, 2 + 2 + 2 + 1) if compiled else OTHER_JOBS // jobs


def _what_a_queue_sees(world: World, speeds: SpeedModel) -> object | None:
    """All inputs of a queue of fixed sizes, rounded to a millionth; None where more than that counts.

    Parameter servers are left out where they always fit beside their workers: on equal machines whose spare CPU they
    divide without a rest, and none asks for more CPU than its GPUs' share.
    """
    workload, environment = world
    if any(job.requested.workers * job.worker_demand.gpu > environment.gpus for job in workload.jobs):
        return None  # they run at another size than they asked for, and at the speed of their model there
    if environment.changes_nodes or environment.speed_noise or environment.job_noise or environment.start_seconds:
        return None
    servers_fit = _servers_always_fit(workload, environment)
    return tuple(
        (
            job.submit_time_seconds,
            job.requested.workers,
            job.worker_demand,
            None if servers_fit else (job.requested.ps, job.ps_demand),
            f"{alone_seconds(job, speeds) or 0.0:.6e}",
            f"{job.shown_epochs / job.total_epochs:.6e}" if job.work_known else None,
        )
        for job in workload.jobs
    )


def _servers_always_fit(workload: Workload, environment: Environment) -> bool:
    node = environment.node_capacity
    if environment.node_sizes or not node.gpu:
        return False
    for job in workload.jobs:
        if job.kind is JobKind.ALLREDUCE:
            servers = 0
        else:
            servers = job.requested.ps * job.ps_demand.cpu_milli
            spare = [node.cpu_milli - count * job.worker_demand.cpu_milli for count in range(node.gpu + 1)]
            if (
                job.ps_demand.gpu
                or not job.ps_demand.cpu_milli
                or any(cpu < 0 or cpu % job.ps_demand.cpu_milli for cpu in spare)
            ):
                return False
        if job.worker_demand.gpu != 1:
            return False
        cpu = job.requested.workers * job.worker_demand.cpu_milli + servers
        if cpu * node.gpu > job.requested.workers * node.cpu_milli:
            return False
    demands = {(job.worker_demand, job.ps_demand.cpu_milli) for job in workload.jobs}
    return len(demands) == 1
