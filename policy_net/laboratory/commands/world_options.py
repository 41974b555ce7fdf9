"""Options that `replay` and `train` share: the world in which a workload runs.

A command takes them by one parameter of type `WorldOptions`, under `with_option_groups`. Code that makes a world of
them is loaded when one is made, so that help and refusals of options are quick.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foundation.figures import counted
from policy_net.domain import CapacityMode, PlacementEffect, SpeedModel
from policy_net.errors import BadInput
from policy_net.laboratory.simulation.environment import DecideOn, Environment, PlacementStrategy
from policy_net.laboratory.workloads.workload import (
    USUAL_CPUS_PER_NODE,
    USUAL_GPUS_PER_NODE,
    JobKindChoice,
    Machines,
)

if TYPE_CHECKING:
    from policy_net.laboratory.workloads.loaders.record import Recording
    from policy_net.laboratory.workloads.workload import Workload

LARGEST_CLUSTER = 100_000
LONGEST_PAUSE_SECONDS = 7 * 86400.0
LONGEST_HOURS = 100_000.0
"""Beyond these an option is a slip of the pen: of 100,000 nodes, a week, eleven years."""

_seconds = functools.partial(typer.Option, min=0.0, max=LONGEST_PAUSE_SECONDS)
_hours = functools.partial(typer.Option, min=0.0, max=LONGEST_HOURS)


def assumptions(
    workload: Workload, environment: Environment, options: WorldOptions, *, for_people: bool
) -> Iterator[str]:
    """Assumptions on a workload and its world; for programs only the malformed rows."""
    if not for_people:
        from policy_net.laboratory.workloads.loaders.record import MALFORMED  # noqa: PLC0415

        yield from (f"{workload.name}: {note}" for note in workload.notes if note.startswith(MALFORMED))
        return
    yield (
        f"{workload.name}: {counted(len(workload.jobs), 'job')} on {counted(environment.nodes, 'node')}"
        f" × {environment.gpus_per_node} GPU and {environment.cpus_per_node} CPU,"
        f" decisions by {environment.decide_on.value}"
    )
    for note in (*workload.notes, *environment.notes, *options.placement_notes):
        yield f"  {note}"


@dataclass(frozen=True, slots=True)
class WorldOptions:
    """Values of the options."""

    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            min=1,
            max=LARGEST_CLUSTER,
            help="Machines; unless given, those that a recorded log names, else what the workload suggests.",
        ),
    ] = None
    gpus_per_node: Annotated[
        int | None,
        typer.Option(
            "--gpus-per-node",
            min=0,
            max=64,
            help="GPUs of one machine; unless given, what a recorded log shows, else 2, and the answer says so.",
        ),
    ] = None
    cpus_per_node: Annotated[
        int | None,
        typer.Option(
            "--cpus-per-node",
            min=1,
            max=1024,
            help="CPU cores of one machine; unless given 8 or, for recorded jobs, what the log shows, at least 4 a"
            " GPU.",
        ),
    ] = None
    gpu_types: Annotated[
        str | None, typer.Option("--gpu-types", metavar="TYPE:NODES,…", help="GPU types of the nodes, as v100:8,k80:4.")
    ] = None
    locality: Annotated[
        bool,
        typer.Option("--locality", help="All-reduce jobs train slower where their workers lie apart, as measured."),
    ] = False
    slot_seconds: Annotated[
        float,
        _seconds("--slot-seconds", min=1.0, help="Length of a slot, or of the tick under event decisions."),
    ] = 1200.0
    decide_on: Annotated[
        DecideOn | None,
        typer.Option("--decide-on", help="Unless given: slot for generated and reference workloads, event for a csv."),
    ] = None
    debounce_seconds: Annotated[
        float,
        _seconds("--debounce-seconds", help="Least time between two event decisions, but for nodes and queues (fifo)."),
    ] = 60.0
    capacity: Annotated[
        CapacityMode, typer.Option("--capacity", help="Place every task on a node, or only add up the cluster's total.")
    ] = CapacityMode.NODES
    placement: Annotated[
        PlacementStrategy,
        typer.Option("--placement", help="Tasks on the least loaded nodes, or a job's workers on as few as possible."),
    ] = PlacementStrategy.SPREAD
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Draws whatever the workload leaves open, and the noise.")
    ] = 0
    limit_jobs: Annotated[
        int | None, typer.Option("--limit-jobs", min=1, help="At most so many jobs of a workload.")
    ] = None
    window: Annotated[int, typer.Option("--window", min=0, help="Take the K-th run of --limit-jobs jobs of a csv.")] = 0
    arrival_scale: Annotated[
        float,
        typer.Option(
            "--arrival-scale", min=0.001, max=1000.0, help="Multiplies the time between arrivals: 2 halves the load."
        ),
    ] = 1.0
    job_kind: Annotated[
        JobKindChoice | None,
        typer.Option(
            "--job-kind",
            help="How recorded jobs train, allreduce unless given; mix: half ps, half allreduce, drawn from the seed.",
        ),
    ] = None
    elastic_share: Annotated[
        float | None,
        typer.Option(
            "--elastic-share",
            min=0.0,
            max=1.0,
            help="Share of the jobs, drawn with the seed, that may change size; the others keep what they asked for."
            " All unless given, and half in the answer's range.",
        ),
    ] = None
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Refuse a recorded workload's first malformed row; else skip and count such rows."
        ),
    ] = False
    speeds_file: Annotated[
        Path | None,
        typer.Option(
            "--speeds",
            help="Speed table (csv) as the truth, or decisions:PATH, what a log shows; else the built-in fit.",
        ),
    ] = None
    speed_noise: Annotated[
        float,
        typer.Option("--speed-noise", min=0.0, max=1.0, help="Relative deviation of a job's speed in an interval."),
    ] = 0.0
    job_noise: Annotated[
        float,
        typer.Option("--job-noise", min=0.0, max=1.0, help="Relative deviation of a factor that a job's speed keeps."),
    ] = 0.0
    epoch_error: Annotated[
        float, typer.Option("--epoch-error", min=0.0, max=1.0, help="Declared epochs are off by up to this share.")
    ] = 0.0
    durations: Annotated[
        str, typer.Option("--durations", help="What users know of their jobs' work: known, lognormal:SIGMA or unknown.")
    ] = "known"
    resize_seconds: Annotated[
        float, _seconds("--resize-seconds", help="Pause of a running job whose number of tasks changes.")
    ] = 0.0
    resume_seconds: Annotated[
        float, _seconds("--resume-seconds", help="Pause of a job that starts again; see --start-seconds for its first.")
    ] = 0.0
    start_seconds: Annotated[
        float,
        _seconds("--start-seconds", help="Pause of a job's first start; 0 where recorded durations include it."),
    ] = 0.0
    checkpoint_seconds: Annotated[
        float, _seconds("--checkpoint-seconds", help="Training between checkpoints; 0: a lost node loses no work.")
    ] = 0.0
    node_mtbf_hours: Annotated[
        float, _hours("--node-mtbf-hours", help="Mean time of a node to its failure; 0 for none.")
    ] = 0.0
    node_repair_hours: Annotated[
        float, _hours("--node-repair-hours", help="Mean time of a failed node to its return.")
    ] = 1.0
    resize_cluster: Annotated[
        list[str] | None,
        typer.Option("--resize-cluster", metavar="HOUR:NODES", help="From that hour on, so many nodes (repeatable)."),
    ] = None

    def speeds(self) -> SpeedModel:
        """The simulator's truth.

        Raises:
            BadInput: the speed table cannot be used.
        """
        from policy_net.laboratory.speeds.speed import default_speeds, read_speed_table  # noqa: PLC0415
        from policy_net.laboratory.workloads.sources import DECISIONS_PREFIX  # noqa: PLC0415

        if self.speeds_file is None:
            return default_speeds()
        name = str(self.speeds_file)
        if name.startswith(DECISIONS_PREFIX):
            from policy_net.laboratory.logged import speeds_of_decisions  # noqa: PLC0415

            return speeds_of_decisions(Path(name.removeprefix(DECISIONS_PREFIX)))
        return read_speed_table(self.speeds_file)

    def placement_effect(self) -> PlacementEffect | None:
        """Effect of places and GPU types on speeds, if it is asked for.

        Raises:
            BadInput: nothing is known about a type of GPU, or capacity is pooled, so that no task has a place.
        """
        types = _parse_gpu_types(self.gpu_types)
        if not (types or self.locality):
            return None
        if self.capacity is CapacityMode.POOLED:
            raise BadInput("--locality and --gpu-types need --capacity nodes: pooled tasks lie nowhere")
        from policy_net.laboratory.speeds.placement_effect import FittedPlacementEffect, check_gpu_type  # noqa: PLC0415

        for name, _ in types:
            check_gpu_type(name)
        return FittedPlacementEffect(apart=self.locality)

    @property
    def placement_notes(self) -> tuple[str, ...]:
        """Assumptions of the effect of places, in plain words."""
        if not self.locality:
            return ()
        return ("all-reduce jobs train slower where their workers lie apart; recorded durations count as one node's",)

    def workload(self, source: str, speeds: SpeedModel, recording: Recording | None = None) -> Workload:
        """Read or generate a workload; `recording` is of `read_source`, if it was read already.

        Raises:
            BadInput: the source cannot be used.
        """
        from policy_net.laboratory.workloads.sources import load_workload  # noqa: PLC0415
        from policy_net.laboratory.workloads.workload import (  # noqa: PLC0415
            WorkloadOptions,
            parse_durations,
            with_estimates,
        )

        estimates = parse_durations(self.durations, self.epoch_error)
        loaded = load_workload(
            source,
            WorkloadOptions(
                seed=self.seed,
                limit_jobs=self.limit_jobs,
                window=self.window,
                job_kind=self.job_kind or JobKindChoice.ALLREDUCE,
                strict=self.strict,
                nodes=self.nodes or sum(count for _, count in _parse_gpu_types(self.gpu_types)) or None,
                gpus_per_node=self.gpus_per_node,
                cpus_per_node=self.cpus_per_node,
                arrival_scale=self.arrival_scale,
                speeds=speeds,
            ),
            recording,
        )
        loaded = with_estimates(loaded, estimates, self.seed)
        if self.elastic_share is None:
            return loaded
        from policy_net.laboratory.simulation.admission import with_elastic_share  # noqa: PLC0415

        return with_elastic_share(loaded, self.environment(loaded), self.elastic_share, self.seed)

    def elastic_share_of(self, workload: Workload) -> float | None:
        """Share of a recorded workload's jobs that can be resized, given or assumed; None where a log says it."""
        if self.elastic_share is not None or workload.machines is None:
            return self.elastic_share
        return 1.0

    def environment(self, workload: Workload) -> Environment:
        """Machines and decision rule for a workload.

        Raises:
            BadInput: the number of nodes is neither given nor suggested by the workload, or an option cannot be used.
        """
        gpu_types = _parse_gpu_types(self.gpu_types)
        if self.nodes is not None and self.nodes < 1:  # a library user's
            raise BadInput(f"nodes is {self.nodes}: use 1 or more")
        nodes = self.nodes or sum(count for _, count in gpu_types) or workload.suggested_nodes
        if nodes is None:
            raise BadInput(f"{workload.name}: this workload suggests no cluster size; give --nodes")
        usual = workload.machines or Machines(nodes, USUAL_GPUS_PER_NODE, USUAL_CPUS_PER_NODE)
        environment = Environment(
            nodes=nodes,
            gpus_per_node=usual.gpus_per_node if self.gpus_per_node is None else self.gpus_per_node,
            cpus_per_node=usual.cpus_per_node if self.cpus_per_node is None else self.cpus_per_node,
            slot_seconds=self.slot_seconds,
            decide_on=self.decide_on or (DecideOn.SLOT if workload.slotted else DecideOn.EVENT),
            debounce_seconds=self.debounce_seconds,
            capacity_mode=self.capacity,
            placement=self.placement,
            gpu_types=gpu_types,
            speed_noise=self.speed_noise,
            job_noise=self.job_noise,
            resize_seconds=self.resize_seconds,
            resume_seconds=self.resume_seconds,
            start_seconds=self.start_seconds,
            checkpoint_seconds=self.checkpoint_seconds,
            node_mtbf_seconds=self.node_mtbf_hours * 3600.0,
            node_repair_seconds=self.node_repair_hours * 3600.0,
            seed=self.seed,
        )
        from policy_net.laboratory.simulation.node_changes import resizing  # noqa: PLC0415

        changes = resizing(nodes, environment.node_capacity, map(_parse_size, self.resize_cluster or ()))
        return dataclasses.replace(environment, node_changes=changes)


def _parse_gpu_types(text: str | None) -> tuple[tuple[str, int], ...]:
    """(type, nodes) pairs from TYPE:NODES,…"""
    types: dict[str, int] = {}
    for part in () if text is None else text.split(","):
        name, _, count = (piece.strip() for piece in part.partition(":"))
        if not (name and count.isascii() and count.isdigit() and 1 <= int(count[:7]) <= LARGEST_CLUSTER):
            raise BadInput(f"--gpu-types {text!r}: {part!r} is not TYPE:NODES, such as v100:8")
        if name in types:
            raise BadInput(f"--gpu-types {text!r}: {name!r} is given twice")
        types[name] = int(count)
    return tuple(types.items())


def _parse_size(text: str) -> tuple[float, int]:
    """(seconds, nodes) from HOUR:NODES."""
    hour_text, _, nodes = (piece.strip() for piece in text.partition(":"))
    try:
        hour = float(hour_text)
    except ValueError:
        hour = math.nan
    if not (
        0 <= hour <= LONGEST_HOURS and nodes.isascii() and nodes.isdigit() and 1 <= int(nodes[:7]) <= LARGEST_CLUSTER
    ):
        raise BadInput(f"--resize-cluster {text!r}: use HOUR:NODES, such as 24:40")
    return hour * 3600.0, int(nodes)
