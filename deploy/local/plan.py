"""The plan of the demo: which clusters, with which jobs, what is kept for judging, and their agents' settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from deploy.demonstration.configs import FleetSettings, agent_content
from deploy.demonstration.frame import DemoLearner
from global_learner.report.words import listed
from policy_net.domain import SpeedModel
from policy_net.errors import BadInput
from policy_net.laboratory.commands.world_options import WorldOptions
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.workloads.workload import JobKindChoice, Workload

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
class ClusterPlan:
    """One cluster of the fleet.

    Attributes:
        own: the jobs that it schedules while it learns, and that every policy is compared on.
        held_out: workloads of the same kind that nobody trains on.
        held_out_note: where those come from, if it is not what one would expect.
        lasting: source and options of jobs of the same kind that keep coming, for rollouts; None: as `own`.
        past: source of what it runs and its lessons replay, in windows of `jobs`; empty: it learns of what its own
            decisions bring.
    """

    name: str
    source: str
    own: WorldOptions
    held_out: tuple[WorldOptions, ...]
    jobs: int
    nodes: int
    held_out_note: str = ""
    lasting: tuple[str, WorldOptions] | None = None
    past: str = ""

    def world(self, options: WorldOptions, speeds: SpeedModel) -> tuple[Workload, Environment]:
        """The cluster's workload under these options, and the machines that it meets."""
        workload = options.workload(self.source, speeds)
        return workload, options.environment(workload)


def make_plan(
    workloads: Path | None, fleet: Sequence[str], seed: int, jobs: int | None, least_jobs: int = 1
) -> tuple[ClusterPlan, ...]:
    """Decide what every cluster runs, `least_jobs` or more, and read it once to see that it can be.

    Raises:
        BadInput: a folder, a name or a file cannot be used, or holds too few jobs.
    """
    if len(set(fleet)) != len(fleet):
        raise BadInput(f"FLEET={','.join(fleet)} names a cluster twice")
    if jobs is not None and jobs < least_jobs:
        raise BadInput(f"JOBS={jobs}: use {least_jobs} or more")
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
            raise BadInput(f"FLEET: no cluster {name!r} in {folder}; it holds {listed(found, 8)}")
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
    workload, environment = plan.world(plan.own, plan.own.speeds())
    there = len(workload.jobs)
    if there < plan.jobs:
        raise BadInput(f"{plan.source}: {there} jobs, {plan.jobs} wanted; use JOBS={there} or fewer, or another FLEET")
    return replace(plan, nodes=environment.nodes)


class DemoPolicy(StrEnum):
    """Which kind of policy the fleet runs."""

    SET = "set"
    DL2 = "dl2"


FLEETS: Mapping[DemoPolicy, FleetSettings] = {
    # The policy is good from its first decision on, and must stay so.
    DemoPolicy.SET: FleetSettings(),
    DemoPolicy.DL2: FleetSettings(learning_rate=1e-3, average_decay=0.5, seconds=120.0, speedup=2400.0),
}
"""What the demo sets for each kind. Without rollouts under `dl2`, which is no match for the gate after minutes."""
ROLLOUT_SPEEDUP = 20_000.0
"""Of the clusters' clocks in rollouts, at most: sixteen slots a second, so that clusters that are not tried leave the
processors to the twins of those that are."""


def simulated_agent(
    cluster: ClusterPlan, learner: DemoLearner, settings: FleetSettings, *, by_rollouts: bool = False
) -> dict[str, Any]:
    """The configuration of an agent whose cluster is simulated.

    Args:
        by_rollouts: it schedules as a real one does, at a pace at which the twin keeps up, and learns nothing.
    """
    lasting = cluster.lasting if by_rollouts else None
    source, world = lasting or (cluster.past or cluster.source, cluster.own)
    job_kind = (world.job_kind or JobKindChoice.ALLREDUCE).value
    speedup = ROLLOUT_SPEEDUP if by_rollouts else settings.speedup
    learning: dict[str, Any] = {"enabled": not by_rollouts, "source": "twin" if cluster.past else "live"}
    if cluster.past:
        learning["twin"] = {
            "history": [cluster.past],
            "job_kind": job_kind,
            "window_jobs": cluster.jobs,
            "cpu_percent": 100,
            "work_known": world.durations == "known",
            "gradient": {"pairs": 6},  # half of a lesson's time; the rest is its process's start
        }
    explores = not (by_rollouts or cluster.past)
    workload = _given(world, "seed", "window", "arrival_scale", "durations", "limit_jobs")
    sections = {
        "backend": {
            "kind": "simulated",
            "workloads": [{"source": source, "job_kind": job_kind, **workload}],
            "episodes": settings.episodes,
            "environment": _given(world, "nodes", "gpus_per_node", "cpus_per_node"),
            "pace": {"kind": "lockstep"} if speedup is None else {"kind": "scaled", "speedup": speedup},
            "baseline": not by_rollouts,
            "wait_for_twin": by_rollouts,
        },
        "policy": {
            "mode": "sample" if explores else "greedy",
            "exploration": 0.05 if explores else 0.0,
            "seed": world.seed,
        },
        "learning": learning,
        # Versions come by the second; whoever looks at the logs afterwards wants every one of them.
        "decision_log": {"keep_policies": 1000},
    }
    return agent_content(cluster.name, learner, sections, twin_cpu_percent=100 if by_rollouts else 0)


def _given(world: WorldOptions, *names: str) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(world, name)) is not None}
