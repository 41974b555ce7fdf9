"""The eight training jobs of DL2's evaluation: how large an epoch is, how many there are, and what a task needs.

Source: DL2 §6.1 and the set-up of its authors' simulator: a node there has 8 CPU and 8 GPU units, 4 GPU units being one
GPU, so that a worker takes 2 cores and 1 GPU (none for the two CPU-only models), and a parameter server 2 cores.
An "epoch" is the authors' unit of work: `samples_per_epoch` samples, not a pass over the real data set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from policy_net.domain import Allocation, Resources

GPU_WORKER = Resources(cpu_milli=2000, gpu=1)
CPU_WORKER = Resources(cpu_milli=2000)
PARAMETER_SERVER = Resources(cpu_milli=2000)

SLOT_SECONDS = 1200.0
"""DL2's slot: the unit of arrival times in its traces."""

UNSTATED_REQUEST = Allocation(workers=2, ps=2)
"""What a job is taken to ask for where nothing says: one default node (8 CPU, 2 GPU), full. Only fixed-size schedulers
use it."""


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """What is known about a model before it runs.

    Attributes:
        samples_per_epoch: samples/s divided by this is epochs/s.
        nominal_epochs: the length of a job of this model where sizes are fixed.
        size_megabytes: the parameters that workers push and pull in every step.
    """

    name: str
    samples_per_epoch: float
    nominal_epochs: float
    size_megabytes: float
    worker_demand: Resources = GPU_WORKER
    ps_demand: Resources = PARAMETER_SERVER


CATALOGUE: Mapping[str, ModelProfile] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            ModelProfile("resnet-50", 115, 9_000, 102.2),
            ModelProfile("vgg-16", 115, 28_800, 553.4),
            ModelProfile("resnext-110", 390, 1_500, 6.92),
            ModelProfile("inception-bn", 120, 16_200, 42.1),
            ModelProfile("seq2seq", 780, 28_500, 36.5),
            ModelProfile("cnn-text-classification", 193, 13_800, 24.0, CPU_WORKER),
            ModelProfile("dssm", 349, 9_900, 6.0, CPU_WORKER),
            ModelProfile("wlm", 165, 6_900, 19.2),
        )
    }
)
"""Every model by name, in the order of the authors' table (which is also the order of type numbers)."""

MODEL_NAMES: tuple[str, ...] = tuple(CATALOGUE)

GPU_MODEL_NAMES: tuple[str, ...] = tuple(name for name, profile in CATALOGUE.items() if profile.worker_demand.gpu > 0)
"""The models whose workers need a GPU: those that a job of a GPU trace may stand for."""

ALIASES: Mapping[str, str] = MappingProxyType({"cnn-text": "cnn-text-classification"})
"""Short names from the paper's text, accepted wherever a user names a model."""


def find_model(name: str) -> ModelProfile | None:
    """The profile of a model by its name or alias; None if there is none."""
    return CATALOGUE.get(ALIASES.get(name, name))
