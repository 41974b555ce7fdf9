"""The plan of the demo: which clusters, with which jobs, and what is kept for judging; checked before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from policy_net.domain import SpeedModel
from policy_net.errors import BadInput
from policy_net.laboratory.commands.world_options import WorldOptions
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.workloads.workload import Workload

CSV_JOBS = 300
"""A window of a real trace: shorter ones are mostly noise."""

GENERATED_JOBS = 60
"""Jobs of a generated workload, as in DL2's own experiments."""

GENERATED_ARRIVAL_SCALE = 2.0
"""Arrivals twice as far apart as DL2's: a load that lasts, instead of one rush that no policy of J = 20 can survey."""

GENERATED_HELD_OUT = 3
"""Held-out draws a cluster; a csv has one held-out window."""

LASTING_JOBS, LASTING_ARRIVAL_SCALE = 1200, 4.0
"""Of a generated workload for rollouts: jobs keep coming for as long as these last, and not more than get done."""

HELD_OUT_SEED = 1_000_000
"""Added to the seed for what nobody trains on."""

_VISION = "resnet-50+vgg-16+resnext-110+inception-bn"
_LANGUAGE = "seq2seq+cnn-text+dssm+wlm"

# Cluster to its nodes and what is said about its jobs.
_GENERATED = {
    "vision": (24, f"max-arrivals=3,mix={_VISION}"),
    "language": (16, f"max-arrivals=2,mix={_LANGUAGE}"),
    "mixed": (32, "max-arrivals=4"),
}


@dataclass(frozen=True, slots=True)
class World:
    """A workload and the machines it meets."""

    workload: Workload
    environment: Environment


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """One cluster of the fleet.

    Attributes:
        own: the jobs that it schedules while it learns, and that every policy is compared on.
        held_out: workloads of the same kind that nobody trains on.
        held_out_note: where those come from, if it is not what one would expect.
        lasting: source and options of jobs of the same kind that keep coming, for rollouts; None: as `own`.
    """

    name: str
    source: str
    own: WorldOptions
    held_out: tuple[WorldOptions, ...]
    jobs: int
    nodes: int
    held_out_note: str = ""
    lasting: tuple[str, WorldOptions] | None = None

    def world(self, options: WorldOptions, speeds: SpeedModel) -> World:
        """The cluster's workload under these options."""
        workload = options.workload(self.source, speeds)
        return World(workload, options.environment(workload))


def make_plan(workloads: Path | None, fleet: Sequence[str], seed: int, jobs: int | None) -> tuple[ClusterPlan, ...]:
    """Decide what every cluster runs, and read it once to see that it can be.

    Raises:
        BadInput: a folder, a name or a file cannot be used, or holds too few jobs.
    """
    if len(set(fleet)) != len(fleet):
        raise BadInput(f"FLEET={','.join(fleet)} names a cluster twice")
    if jobs is not None and jobs < 1:
        raise BadInput(f"JOBS={jobs}: use 1 or more")
    if workloads is None:
        return _generated(fleet, seed, jobs or GENERATED_JOBS)
    if not workloads.is_dir():
        raise BadInput(f"WORKLOADS={workloads}: no such folder; name one that holds csv files")
    return _from_files(workloads, fleet, seed, jobs or CSV_JOBS)


def _generated(fleet: Sequence[str], seed: int, jobs: int) -> tuple[ClusterPlan, ...]:
    plans = []
    for name in fleet or _GENERATED:
        if name not in _GENERATED:
            raise BadInput(
                f"FLEET: no cluster {name!r}; without WORKLOADS there are {', '.join(_GENERATED)}, "
                "with WORKLOADS=FOLDER the names of its csv files"
            )
        nodes, kind = _GENERATED[name]
        own = WorldOptions(seed=seed, nodes=nodes, arrival_scale=GENERATED_ARRIVAL_SCALE)
        held_out = tuple(replace(own, seed=HELD_OUT_SEED + seed + draw) for draw in range(GENERATED_HELD_OUT))
        lasting = f"dl2:jobs={LASTING_JOBS},{kind}", replace(own, arrival_scale=LASTING_ARRIVAL_SCALE)
        plans.append(ClusterPlan(name, f"dl2:jobs={jobs},{kind}", own, held_out, jobs, nodes, lasting=lasting))
    return tuple(plans)


def _from_files(folder: Path, fleet: Sequence[str], seed: int, jobs: int) -> tuple[ClusterPlan, ...]:
    found = sorted(path.stem for path in folder.glob("*.csv"))
    if not found:
        raise BadInput(f"WORKLOADS={folder}: holds no csv file")
    plans = []
    for name in fleet or found[:3]:
        if name not in found:
            raise BadInput(f"FLEET: no cluster {name!r} in {folder}; it holds {_some(found)}")
        own = WorldOptions(seed=seed, limit_jobs=jobs, window=0)
        plan = _checked(ClusterPlan(name, str((folder / f"{name}.csv").resolve()), own, (), jobs, 0))
        later = replace(own, window=1)
        try:
            following = len(later.workload(plan.source, later.speeds()).jobs)
        except BadInput:
            following = 0
        if following >= jobs:
            plans.append(replace(plan, held_out=(later,)))
        else:
            note = f"{name}: no second window of {jobs} jobs, so it is judged on the same jobs with other models"
            other = replace(own, seed=HELD_OUT_SEED + seed)
            plans.append(replace(plan, held_out=(other,), held_out_note=note))
    return tuple(plans)


def _checked(plan: ClusterPlan) -> ClusterPlan:
    """The plan with its number of nodes, once its jobs have been read."""
    world = plan.world(plan.own, plan.own.speeds())
    there = len(world.workload.jobs)
    if there < plan.jobs:
        raise BadInput(f"{plan.source}: {there} jobs, {plan.jobs} wanted; use JOBS={there} or fewer, or another FLEET")
    return replace(plan, nodes=world.environment.nodes)


def _some(names: Sequence[str], limit: int = 8) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")
