"""Experiment of a paper as data: what varies, what is held, what is measured, and what the paper says of it.

A figure is a number of lines; a line is a policy, judged in a world. Policies are named schedulers, or trained; two
lines that say the same training share it, also between figures. Nothing here computes anything.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from policy_net.laboratory.training.settings import Dl2Settings


class Truth(StrEnum):
    """At which speeds the jobs of a training train: those of the simulator, or of a model fitted to few of them."""

    SIMULATED = "simulated"
    ANALYTICAL = "analytical"


class Measure(StrEnum):
    """A figure of a replay."""

    AVG_JCT = "avg_jct_slots"
    MAKESPAN = "makespan_slots"
    GPU_UTILIZATION = "gpu_utilization"
    WORKERS_PER_PS = "workers_per_ps"


class Picture(StrEnum):
    """How a figure is drawn."""

    BARS = "bars"
    CURVES = "curves"
    STEPS = "steps"


@dataclass(frozen=True, slots=True)
class World:
    """Workloads of one kind, and what disturbs their jobs.

    Attributes:
        job_noise: standard deviation of a job's speed, relative to its type's.
        epoch_error: how far declared epochs are off, at most.
        models: that occur; all of DL2's where there are none here.
    """

    arrivals: str = "google"
    job_noise: float = 0.0
    epoch_error: float = 0.0
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class PolicyTraining:
    """How a policy comes to be; what it says of lengths are shares of what the scale gives.

    Attributes:
        teacher: whom it imitates first; None for no warm start.
        imitation: share of the mini-batches of imitation.
        truth: at which speeds jobs train while it learns from rewards.
        unlocked: models that there are in the first part of the training, in the second and so on; imitation sees those
            of the first. Always all of the world's where there are none here.
        clusters: that learn together, each from jobs of its own, by the learner's own code; 0 for one alone.
    """

    settings: Dl2Settings
    teacher: str | None = "drf"
    imitation: float = 1.0
    truth: Truth = Truth.SIMULATED
    world: World = World()
    unlocked: tuple[tuple[str, ...], ...] = ()
    clusters: int = 0

    def to_json(self) -> dict[str, Any]:
        """Everything it says, as values that JSON gives back unchanged."""
        values = {name: getattr(self, name) for name in ("teacher", "imitation", "unlocked", "clusters")}
        return values | {
            # Whom it imitates is said above.
            "settings": self.settings.model_dump(mode="json", exclude={"imitate"}),
            "truth": self.truth.value,
            "world": asdict(self.world),
        }


@dataclass(frozen=True)
class ExperimentLine:
    """One policy, a scheduler's name or a training, in one world: a bar, or a point of a curve.

    Attributes:
        at: where on a curve it stands.
        trained_share: share of the updates after which a trained policy is judged; 0: after its warm start.
    """

    label: str
    policy: str | PolicyTraining
    at: float | None = None
    trained_share: float = 1.0
    judged: World = World()


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that the paper says of a figure, and how it is put to the test.

    Attributes:
        of, against: the lines (label, at); the claim is the change from the second to the first, and where there is no
            second it is the first's figure itself.
        paper: that figure in the paper; None where it gives no number, but `words` something.
        direction: -1 where that means less, 1 where it means more, 0 where it is nothing that can be compared.
    """

    text: str
    of: tuple[str, float | None]
    against: tuple[str, float | None] | None
    paper: float | None = None
    words: str = ""
    measure: Measure = Measure.AVG_JCT
    direction: int = 0


@dataclass(frozen=True)
class Experiment:
    """One figure or table.

    Attributes:
        best: labels of the lines of which the paper names the best, and which it is.
        why: why ours differs, beside what holds for all figures.
        timeline_of: a model, the longest job of which is shown step by step.
    """

    name: str
    title: str
    lines: tuple[ExperimentLine, ...]
    claims: tuple[Claim, ...]
    why: str
    picture: Picture = Picture.BARS
    axis: str = ""
    best: tuple[tuple[tuple[str, float | None], ...], tuple[str, float | None]] | None = None
    timeline_of: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much work an experiment is.

    Attributes:
        seeds: of trainings; each has jobs of its own.
        workloads: that judge, the same for all.
        updates: of learning from rewards.
        group_updates: of learning from groups of decisions; 340 take six minutes of a core.
        imitation_steps, demonstrated, micro_states: mini-batches, workloads and micro-states of a warm start.
        learning_rate: of learning from rewards; None leaves the paper's.
        trains_in_judged_world: whether a policy that is judged in another world also learns there.
    """

    name: str
    seeds: int
    workloads: int
    jobs: int
    nodes: int
    updates: int
    imitation_steps: int
    demonstrated: int
    micro_states: int
    learning_rate: float | None = None
    trains_in_judged_world: bool = False
    group_updates: int = 340


@dataclass(frozen=True, slots=True)
class Point:
    """A line's figures.

    Attributes:
        by_seed: by measure, one row a training seed, one number a workload; a scheduler has one row.
        lost: whether a process was lost on the way, so that another run may find more.
        timeline: (slot, workers, servers) of the job that is shown.
    """

    label: str
    at: float | None
    by_seed: dict[Measure, list[list[float]]]
    failures: tuple[str, ...] = ()
    timeline: tuple[tuple[float, int, int], ...] = ()
    lost: bool = False


def digest_of_json(content: Any) -> str:
    """A short name of some content, the same for the same content."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
