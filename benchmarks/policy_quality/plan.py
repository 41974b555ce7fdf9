"""The plan of a run: the grids of cells of its options and of the default, always on the seeds that judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.policy_quality.cells import Cell, Disturbance, Durations, RealCell, SyntheticCell
from benchmarks.policy_quality.seeds import JUDGED_GENERATOR_SEED, SEEDS, Part, windows_of
from benchmarks.policy_quality.worlds import Cluster
from policy_net.domain import CapacityMode

WINDOW_JOBS = 1000

Sizing = tuple[int, int]
"""Nodes and jobs."""

SMALL: tuple[Sizing, ...] = ((24, 60), (32, 60), (16, 60), (96, 60))
LARGE: tuple[Sizing, ...] = ((80, 200), (125, 200), (500, 200))


@dataclass(frozen=True, slots=True)
class RealConditions:
    """One set of conditions under which every window of every cluster is replayed.

    Attributes:
        model_seeds: at most so many of the grid's.
    """

    job_kind: str
    load: float
    durations: Durations
    capacity: CapacityMode
    locality: bool = False
    model_seeds: int | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """The cells of one kind of run.

    Attributes:
        seeds_by_jobs: how many generated workloads there are of each size.
        disturbed: sizes on which every disturbance is tried (varied job sizes, tasks placed on nodes).
        noisy: further sizes on which speeds vary from slot to slot, as they do in any real cluster.
        every_nth_cluster: 1 for all of them.
        parts: what the windows that take part may be used for.
    """

    name: str
    sizings: tuple[Sizing, ...]
    sizes: tuple[str, ...]
    seeds_by_jobs: dict[int, int]
    disturbed: tuple[Sizing, ...]
    conditions: tuple[RealConditions, ...]
    every_nth_cluster: int = 1
    window_jobs: int = WINDOW_JOBS
    parts: tuple[Part, ...] = (Part.TEST,)
    model_seeds: int = 2
    noisy: tuple[Sizing, ...] = ()

    def describe(self) -> str:
        """What the run consists of, in a sentence."""
        parts = " and ".join(part.value for part in self.parts)
        clusters = "all clusters" if self.every_nth_cluster == 1 else f"one cluster in {self.every_nth_cluster}"
        seeds = ", ".join(f"{count} seeds of {jobs} jobs" for jobs, count in self.seeds_by_jobs.items())
        made_up = f"made-up workloads with {seeds}; " if seeds else ""
        return (
            f"{self.name}: {made_up}{clusters}, {parts} windows of up to"
            f" {self.window_jobs} jobs, {self.model_seeds} model seeds, {len(self.conditions)} conditions"
        )


def _conditions(
    loads: Sequence[float] = (0.9,),
    durations: Sequence[Durations] = (Durations.KNOWN,),
    capacity: CapacityMode = CapacityMode.POOLED,
    *,
    kinds: Sequence[str] = ("allreduce", "mix"),
    locality: bool = False,
    model_seeds: int | None = None,
) -> tuple[RealConditions, ...]:
    return tuple(
        RealConditions(kind, load, known, capacity, locality, model_seeds)
        for load in loads
        for known in durations
        for kind in kinds
    )


QUICK = Grid(
    "quick",
    sizings=((24, 60), (96, 60), (80, 200)),
    sizes=("varied",),
    seeds_by_jobs={60: 3, 200: 1},
    disturbed=(),
    conditions=_conditions(),
    every_nth_cluster=3,
    window_jobs=300,
    model_seeds=1,
)
DEFAULT = Grid(
    "default",
    sizings=(*SMALL, *LARGE),
    sizes=("fixed", "varied"),
    seeds_by_jobs={60: 10, 200: 4},
    disturbed=((24, 60),),
    conditions=(
        *_conditions(),
        *_conditions(capacity=CapacityMode.NODES, kinds=("mix",)),
        *_conditions(durations=(Durations.LOGNORMAL, Durations.UNKNOWN), kinds=("mix",)),
        *_conditions(durations=(Durations.UNKNOWN,), kinds=("allreduce",), model_seeds=1),
    ),
    noisy=((32, 60), (16, 60), (96, 60)),
)
RECORDED = Grid(
    "recorded",
    sizings=(),
    sizes=(),
    seeds_by_jobs={},
    disturbed=(),
    conditions=_conditions(durations=(Durations.KNOWN, Durations.UNKNOWN)),
)
FULL = Grid(
    "full",
    sizings=(*SMALL, *LARGE),
    sizes=("fixed", "varied"),
    seeds_by_jobs={60: 32, 200: 12},
    disturbed=((24, 60), (16, 60), (96, 60), (80, 200)),
    conditions=(
        *_conditions((0.9, 1.2), tuple(Durations)),
        *_conditions(capacity=CapacityMode.NODES),
        *_conditions(capacity=CapacityMode.NODES, locality=True),
    ),
    parts=(Part.TEST, Part.VALIDATION, Part.TRAIN),
    model_seeds=5,
)


def synthetic_cells(grid: Grid) -> Iterator[SyntheticCell]:
    """The made-up workloads: all sizes of cluster pooled and placed, then the disturbances, then noise elsewhere."""
    for nodes, jobs in grid.sizings:
        for sizes in grid.sizes:
            for capacity in CapacityMode:
                yield from _seeds(grid, nodes, jobs, sizes, capacity, Disturbance.NONE)
    for nodes, jobs in grid.disturbed:
        for disturbance in Disturbance:
            if disturbance is not Disturbance.NONE:
                yield from _seeds(grid, nodes, jobs, "varied", CapacityMode.NODES, disturbance)
    for nodes, jobs in grid.noisy:
        yield from _seeds(grid, nodes, jobs, "varied", CapacityMode.NODES, Disturbance.SLOT_NOISE)


def _seeds(
    grid: Grid, nodes: int, jobs: int, sizes: str, capacity: CapacityMode, disturbance: Disturbance
) -> Iterator[SyntheticCell]:
    noise_seeds = SEEDS[Part.TEST].disturbances
    for number in range(grid.seeds_by_jobs[jobs]):
        yield SyntheticCell(
            nodes, jobs, sizes, capacity, disturbance, JUDGED_GENERATOR_SEED + number, noise_seeds[number]
        )


def real_cells(grid: Grid, clusters: Sequence[Cluster]) -> Iterator[RealCell]:
    """The recorded workloads: every window that takes part, under every condition, with several model seeds."""
    seeds = SEEDS[Part.TEST]
    for condition in grid.conditions:
        for cluster in clusters[:: grid.every_nth_cluster]:
            for window, part in windows_of(cluster.jobs, grid.window_jobs).items():
                if part not in grid.parts:
                    continue
                for number in range(min(grid.model_seeds, condition.model_seeds or grid.model_seeds)):
                    yield RealCell(
                        cluster=cluster.name,
                        file_digest=cluster.file_digest,
                        jobs=min(grid.window_jobs, cluster.jobs - window * grid.window_jobs),
                        window=window,
                        window_jobs=grid.window_jobs,
                        part=part,
                        model_seed=seeds.models[number],
                        noise_seed=seeds.disturbances[number],
                        job_kind=condition.job_kind,
                        load=condition.load,
                        durations=condition.durations,
                        capacity=condition.capacity,
                        locality=condition.locality,
                    )


def cells_of(grid: Grid, clusters: Sequence[Cluster]) -> list[Cell]:
    """All cells of a run, in the order of the report."""
    return [*synthetic_cells(grid), *real_cells(grid, clusters)]
