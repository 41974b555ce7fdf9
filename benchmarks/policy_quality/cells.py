"""A cell: one workload in one environment, described so that it can be logged, compared and made again anywhere."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from benchmarks.policy_quality.seeds import Part
from policy_net.domain import CapacityMode


class Durations(StrEnum):
    """What schedulers are told about a job's work: the truth, the truth times a lognormal error, or nothing."""

    KNOWN = "known"
    LOGNORMAL = "lognormal"
    UNKNOWN = "unknown"


class Disturbance(StrEnum):
    """What goes wrong in a made-up workload; `worlds` has the amounts."""

    NONE = "none"
    JOB_NOISE = "job-noise"
    SLOT_NOISE = "slot-noise"
    EPOCHS_20 = "epochs-20"
    EPOCHS_50 = "epochs-50"
    RESIZE_PAUSE = "resize-pause"
    NODE_LOSS = "node-loss"


@dataclass(frozen=True, slots=True)
class SyntheticCell:
    """A generated workload of DL2's kind, decided by slots.

    Attributes:
        sizes: `fixed` or `varied`, as in `dl2:`.
        seed: the generator's.
        noise_seed: of the disturbance.
    """

    nodes: int
    jobs: int
    sizes: str
    capacity: CapacityMode
    disturbance: Disturbance
    seed: int
    noise_seed: int

    def as_json(self) -> dict[str, Any]:
        """All fields by name, and what kind of cell it is."""
        return {"workload": "synthetic", **asdict(self)}

    def __str__(self) -> str:
        parts = (f"{self.nodes} nodes", self.sizes, self.capacity.value, self.disturbance.value, f"seed {self.seed}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class RealCell:
    """A window of a recorded workload, decided on events.

    Attributes:
        cluster: the file's name without its ending.
        file_digest: of the file's content, so that figures of other data are never taken for those of this.
        window: which run of `window_jobs` jobs, from 0; `part` says what it may be used for.
        model_seed: assigns models to jobs; `noise_seed` is of the wrong declarations.
        job_kind: `ps`, `allreduce`, or `mix` for half of each.
        load: GPUs asked for over GPUs that there are.
        locality: whether all-reduce jobs train slower where their workers lie apart; then tasks are packed onto nodes
            of 8 GPUs.
    """

    cluster: str
    file_digest: str
    jobs: int
    window: int
    window_jobs: int
    part: Part
    model_seed: int
    noise_seed: int
    job_kind: str
    load: float
    durations: Durations
    capacity: CapacityMode
    locality: bool = False

    def as_json(self) -> dict[str, Any]:
        """All fields by name, and what kind of cell it is."""
        return {"workload": "real", **asdict(self)}

    def __str__(self) -> str:
        parts = [self.cluster, f"window {self.window}", f"model seed {self.model_seed}", self.job_kind]
        parts += [f"load {self.load:g}", f"durations {self.durations.value}", self.capacity.value]
        return ", ".join([*parts, "locality"] if self.locality else parts)


Cell = SyntheticCell | RealCell
