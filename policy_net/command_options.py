"""The options that `replay` and `train` share: which world a workload runs in.

Each alias is one option with its unit; `WorldOptions` gathers the values and turns them into the simulator's types.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from policy_net.domain import CapacityMode, SpeedModel
from policy_net.errors import BadInput
from policy_net.simulation.environment import DecideOn, Environment
from policy_net.simulation.job_kinds import JobKindChoice
from policy_net.simulation.loaders.intake import MALFORMED
from policy_net.simulation.sources import WorkloadOptions, load_workload
from policy_net.simulation.speed import default_speeds, read_speed_table
from policy_net.simulation.workload import Workload

Debug = Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")]
Nodes = Annotated[
    int | None, typer.Option("--nodes", min=1, max=100_000, help="Machines; what the workload suggests unless given.")
]
GpusPerNode = Annotated[int, typer.Option("--gpus-per-node", min=0, max=64, help="GPUs of one machine.")]
CpusPerNode = Annotated[int, typer.Option("--cpus-per-node", min=1, max=1024, help="CPU cores of one machine.")]
SlotSeconds = Annotated[
    float, typer.Option("--slot-seconds", min=1.0, help="Length of a slot, or of the tick under event decisions.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Draws whatever the workload leaves open, and the noise.")]
LimitJobs = Annotated[int | None, typer.Option("--limit-jobs", min=1, help="At most so many jobs of a workload.")]
Window = Annotated[int, typer.Option("--window", min=0, help="Take the K-th run of --limit-jobs jobs of a csv.")]
SpeedNoise = Annotated[
    float, typer.Option("--speed-noise", min=0.0, max=1.0, help="Relative deviation of a job's speed in an interval.")
]
Speeds = Annotated[
    Path | None, typer.Option("--speeds", help="Speed table (csv) as the truth; the built-in fit unless given.")
]
Capacity = Annotated[
    CapacityMode, typer.Option("--capacity", help="Place every task on a node, or only add up the cluster's total.")
]
ArrivalScale = Annotated[
    float, typer.Option("--arrival-scale", min=0.001, help="Multiplies the times between arrivals: 2 halves the load.")
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Refuse a recorded workload's first malformed row; else skip and count such rows."),
]
DecideOnOption = Annotated[
    DecideOn | None,
    typer.Option("--decide-on", help="Unless given: slot for generated and reference workloads, event for a csv."),
]
JobKindOption = Annotated[
    JobKindChoice,
    typer.Option("--job-kind", help="How the jobs of a csv train; mix: half ps, half allreduce, drawn from the seed."),
]


def warn_of_malformed_rows(workload: Workload) -> None:
    """Say on stderr what was skipped as malformed, where the other assumptions are not printed."""
    for note in workload.notes:
        if note.startswith(MALFORMED):
            print(f"{workload.name}: {note}", file=sys.stderr)


@dataclass(frozen=True, slots=True)
class WorldOptions:
    """The values of the options above."""

    nodes: int | None = None
    gpus_per_node: int = 2
    cpus_per_node: int = 8
    slot_seconds: float = 1200.0
    seed: int = 0
    limit_jobs: int | None = None
    window: int = 0
    speed_noise: float = 0.0
    speeds_file: Path | None = None
    capacity: CapacityMode = CapacityMode.NODES
    arrival_scale: float = 1.0
    decide_on: DecideOn | None = None
    job_kind: JobKindChoice = JobKindChoice.PS
    strict: bool = False

    def speeds(self) -> SpeedModel:
        """The simulator's truth.

        Raises:
            BadInput: the speed table cannot be used.
        """
        return default_speeds() if self.speeds_file is None else read_speed_table(self.speeds_file)

    def workload(self, source: str, speeds: SpeedModel) -> Workload:
        """Read or generate a workload.

        Raises:
            BadInput: the source cannot be used.
        """
        return load_workload(
            source,
            WorkloadOptions(
                seed=self.seed,
                limit_jobs=self.limit_jobs,
                window=self.window,
                job_kind=self.job_kind,
                strict=self.strict,
                gpus_per_node=self.gpus_per_node,
                cpus_per_node=self.cpus_per_node,
                arrival_scale=self.arrival_scale,
                speeds=speeds,
            ),
        )

    def environment(self, workload: Workload) -> Environment:
        """The machines and the decision rule for one workload.

        Raises:
            BadInput: the number of nodes is neither given nor suggested by the workload.
        """
        nodes = self.nodes if self.nodes is not None else workload.suggested_nodes
        if nodes is None:
            raise BadInput(f"{workload.name}: this workload suggests no cluster size; give --nodes")
        return Environment(
            nodes=nodes,
            gpus_per_node=self.gpus_per_node,
            cpus_per_node=self.cpus_per_node,
            slot_seconds=self.slot_seconds,
            decide_on=self.decide_on or (DecideOn.SLOT if workload.slotted else DecideOn.EVENT),
            capacity_mode=self.capacity,
            speed_noise=self.speed_noise,
            seed=self.seed,
        )
