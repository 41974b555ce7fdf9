"""Worlds in which the twin is timed: a recorded window, or generated jobs, of each kind that the twin covers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.policy_quality.cells import Durations, RealCell
from benchmarks.policy_quality.seeds import Part
from benchmarks.policy_quality.worlds import build_world
from policy_net.domain import CapacityMode, PlacementEffect, SpeedModel
from policy_net.errors import BadInput
from policy_net.laboratory.simulation.environment import DecideOn, Environment, PlacementStrategy
from policy_net.laboratory.speeds.placement_effect import default_placement_effect
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import Estimates, Workload, WorkloadOptions, with_estimates

CLUSTER = "itp-04"
"""The largest of the recorded ones; its first window trains."""
LOAD = 0.9
NODES = 96
"""Of generated jobs."""
ALLREDUCE_MODELS = ("bert-64-allreduce", "gpt2-128-allreduce", "resnet50-128-allreduce", "vgg16-256-allreduce")
PS_MODELS = ("resnet-50", "vgg-16", "seq2seq", "wlm")
PAUSE_SECONDS = 120.0
SEED = 0


@dataclass(frozen=True, slots=True)
class TwinWorld:
    """What is timed.

    Attributes:
        source: `mix` or `allreduce`, as in `policy_quality`.
        pauses: whether resizes and resumes cost two minutes each.
        locality: whether it makes a difference where workers lie.
        planned: whether plans say where tasks go.
    """

    name: str
    source: str
    durations: Durations
    capacity: CapacityMode
    pauses: bool = False
    locality: bool = False
    planned: bool = False


WORLDS = (
    TwinWorld("all-reduce, known", "allreduce", Durations.KNOWN, CapacityMode.POOLED),
    TwinWorld("all-reduce, unknown", "allreduce", Durations.UNKNOWN, CapacityMode.POOLED),
    TwinWorld("mix, known", "mix", Durations.KNOWN, CapacityMode.POOLED),
    TwinWorld("mix, wrong", "mix", Durations.LOGNORMAL, CapacityMode.POOLED),
    TwinWorld("mix, unknown", "mix", Durations.UNKNOWN, CapacityMode.POOLED),
    TwinWorld("mix, known, pauses", "mix", Durations.KNOWN, CapacityMode.POOLED, pauses=True),
    TwinWorld("mix, known, placed", "mix", Durations.KNOWN, CapacityMode.NODES),
    TwinWorld("all-reduce, known, locality", "allreduce", Durations.KNOWN, CapacityMode.NODES, locality=True),
    TwinWorld(
        *("all-reduce, known, planned places", "allreduce", Durations.KNOWN, CapacityMode.NODES),
        locality=True,
        planned=True,
    ),
)


@dataclass(frozen=True, slots=True)
class BuiltWorld:
    """A world to replay."""

    workload: Workload
    environment: Environment
    speeds: SpeedModel
    effect: PlacementEffect | None


def build(world: TwinWorld, data: Path | None, jobs: int) -> BuiltWorld:
    """The world with so many jobs.

    Raises:
        BadInput: the folder lacks the recorded cluster.
    """
    pauses = PAUSE_SECONDS if world.pauses else 0.0
    if data is None:
        return _generated(world, jobs, pauses)
    if not (data / "workloads" / f"{CLUSTER}.csv").is_file():
        raise BadInput(f"{data}: has no workloads/{CLUSTER}.csv; leave --data out for generated jobs")
    cell = RealCell(
        *(CLUSTER, "", jobs, 0, jobs, Part.TRAIN, SEED, SEED, world.source, LOAD),
        durations=world.durations,
        capacity=world.capacity,
        locality=world.locality,
    )
    found = build_world(cell, data)
    environment = Environment(
        nodes=found.environment.nodes,
        gpus_per_node=found.environment.gpus_per_node,
        cpus_per_node=found.environment.cpus_per_node,
        decide_on=DecideOn.EVENT,
        capacity_mode=world.capacity,
        speed_noise=found.environment.speed_noise,
        resize_seconds=pauses,
        resume_seconds=pauses,
        placement=found.environment.placement,
        seed=SEED,
    )
    return BuiltWorld(found.workload, environment, found.speeds, found.placement_effect)


def _generated(world: TwinWorld, jobs: int, pauses: float) -> BuiltWorld:
    """Jobs of DL2's arrivals and lengths, of models that train by all-reduce, or of these and others."""
    speeds = default_speeds()
    models = ALLREDUCE_MODELS if world.source == "allreduce" else ALLREDUCE_MODELS + PS_MODELS
    source = f"dl2:jobs={jobs},arrivals=google,sizes=varied,seed={SEED},mix={'+'.join(models)}"
    workload = load_workload(source, WorkloadOptions(speeds=speeds))
    environment = Environment(
        nodes=NODES,
        decide_on=DecideOn.EVENT,
        capacity_mode=world.capacity,
        speed_noise=0.273,
        resize_seconds=pauses,
        resume_seconds=pauses,
        placement=PlacementStrategy.PACK if world.locality else PlacementStrategy.SPREAD,
        seed=SEED,
    )
    estimates = {
        Durations.KNOWN: Estimates(),
        Durations.LOGNORMAL: Estimates(duration_sigma=1.0),
        Durations.UNKNOWN: Estimates(known=False),
    }[world.durations]
    effect = default_placement_effect() if world.locality else None
    return BuiltWorld(with_estimates(workload, estimates, SEED), environment, speeds, effect)
