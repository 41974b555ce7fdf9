"""Worlds in which the twin is timed: a recorded window, or generated jobs, of each kind that the twin covers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.policy_quality.cells import Durations, RealCell
from benchmarks.policy_quality.seeds import Part
from benchmarks.policy_quality.worlds import DECLARATIONS, MEASUREMENT_NOISE, World, build_world, workload_file
from policy_net.domain import CapacityMode
from policy_net.errors import BadInput
from policy_net.laboratory.simulation.environment import DecideOn, Environment, PlacementStrategy
from policy_net.laboratory.speeds.placement_effect import default_placement_effect
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import WorkloadOptions, with_estimates

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
        locality: whether it makes a difference where workers run.
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


def build(world: TwinWorld, data: Path | None, jobs: int) -> World:
    """The world with so many jobs.

    Raises:
        BadInput: the folder lacks the recorded cluster.
    """
    found = _generated(world, jobs) if data is None else _recorded(world, jobs, data)
    pauses = PAUSE_SECONDS if world.pauses else 0.0
    return replace(found, environment=replace(found.environment, resize_seconds=pauses, resume_seconds=pauses))


def _recorded(world: TwinWorld, jobs: int, data: Path) -> World:
    if not workload_file(data, CLUSTER).is_file():
        raise BadInput(f"{data}: has no workloads/{CLUSTER}.csv; leave --data out for generated jobs")
    cell = RealCell(
        *(CLUSTER, "", jobs, 0, jobs, Part.TRAIN, SEED, SEED, world.source, LOAD),
        durations=world.durations,
        capacity=world.capacity,
        locality=world.locality,
    )
    return build_world(cell, data)


def _generated(world: TwinWorld, jobs: int) -> World:
    """Jobs of DL2's arrivals and lengths, of models that train by all-reduce, or of these and others."""
    speeds = default_speeds()
    models = ALLREDUCE_MODELS if world.source == "allreduce" else ALLREDUCE_MODELS + PS_MODELS
    source = f"dl2:jobs={jobs},arrivals=google,sizes=varied,seed={SEED},mix={'+'.join(models)}"
    workload = load_workload(source, WorkloadOptions(speeds=speeds))
    environment = Environment(
        nodes=NODES,
        decide_on=DecideOn.EVENT,
        capacity_mode=world.capacity,
        speed_noise=MEASUREMENT_NOISE,
        placement=PlacementStrategy.PACK if world.locality else PlacementStrategy.SPREAD,
        seed=SEED,
    )
    effect = default_placement_effect() if world.locality else None
    return World(with_estimates(workload, DECLARATIONS[world.durations], SEED), environment, speeds, effect)
