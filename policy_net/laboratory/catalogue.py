"""Catalogue of the models that simulated jobs train: how large an epoch is, how many there are, and what a task needs.

Three kinds. A type's name fixes its kind, since a scheduler learns speeds by type:

- `vgg-16`, …: the eight jobs of DL2's evaluation, synchronous over parameter servers. Source: DL2 §6.1 and the set-up
  of its authors' simulator: a node there has 8 CPU and 8 GPU units, 4 GPU units being one GPU, so that a worker takes
  2 cores and 1 GPU (none for the two CPU-only models), and a parameter server 2 cores. An "epoch" is the authors' unit
  of work: `samples_per_epoch` samples, not a pass over the real data set.
- `vgg-16-async`, …: the same models, workers not waiting for each other.
- `vgg16-256-allreduce`, …: the models that ElasticFlow was evaluated on, each with the global batches (256) that were
  measured. An "epoch" is ten steps, seconds on one GPU as in DL2. A worker takes 1 GPU and, our choice, 2 cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from policy_net.domain import Allocation, JobKind, Resources

GPU_WORKER = Resources(cpu_milli=2000, gpu=1)
CPU_WORKER = Resources(cpu_milli=2000)
PARAMETER_SERVER = Resources(cpu_milli=2000)

SLOT_SECONDS = 1200.0
"""DL2's slot: the unit of arrival times in its traces."""

UNSTATED_REQUEST = Allocation(workers=2, ps=2)
"""What a job is taken to ask for where nothing says: one default node (8 CPU, 2 GPU), full. Only fixed-size schedulers
use it."""

STEPS_PER_EPOCH = 10
"""Of an all-reduce job."""


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """What is known about a model before it runs.

    Attributes:
        nominal_epochs: the length of a job of this model where sizes are fixed.
        size_megabytes: the parameters that workers push and pull, or reduce, in every step.
        family: the model without kind and batch, by which its constants are found.
        global_batch: of an all-reduce job; its batch stays as it is when it is resized.
    """

    name: str
    samples_per_epoch: float
    nominal_epochs: float
    size_megabytes: float
    worker_demand: Resources = GPU_WORKER
    ps_demand: Resources = PARAMETER_SERVER
    kind: JobKind = JobKind.PS
    family: str = ""
    global_batch: int = 0

    @property
    def unstated_request(self) -> Allocation:
        """What such a job is taken to ask for where nothing says."""
        return UNSTATED_REQUEST if self.kind.uses_ps else Allocation(UNSTATED_REQUEST.workers, 0)


_PS_PROFILES = (
    ModelProfile("resnet-50", 115, 9_000, 102.2, family="resnet-50"),
    ModelProfile("vgg-16", 115, 28_800, 553.4, family="vgg-16"),
    ModelProfile("resnext-110", 390, 1_500, 6.92, family="resnext-110"),
    ModelProfile("inception-bn", 120, 16_200, 42.1, family="inception-bn"),
    ModelProfile("seq2seq", 780, 28_500, 36.5, family="seq2seq"),
    ModelProfile("cnn-text-classification", 193, 13_800, 24.0, CPU_WORKER, family="cnn-text-classification"),
    ModelProfile("dssm", 349, 9_900, 6.0, CPU_WORKER, family="dssm"),
    ModelProfile("wlm", 165, 6_900, 19.2, family="wlm"),
)


def _allreduce(family: str, size_megabytes: float, batch: int, nominal_epochs: float) -> ModelProfile:
    return ModelProfile(
        f"{family}-{batch}-allreduce",
        STEPS_PER_EPOCH * batch,
        nominal_epochs,
        size_megabytes,
        kind=JobKind.ALLREDUCE,
        family=family,
        global_batch=batch,
    )


# Sizes: parameters × 4 bytes, by the models' papers. Nominal lengths: 12 hours on 4 GPUs, rounded.
_ALLREDUCE_PROFILES = (
    _allreduce("bert", 440, 64, 45_000),
    _allreduce("bert", 440, 128, 35_000),
    _allreduce("deepspeech2", 210, 32, 33_000),
    _allreduce("deepspeech2", 210, 64, 21_000),
    _allreduce("gpt2", 498, 128, 71_000),
    _allreduce("gpt2", 498, 256, 49_000),
    _allreduce("inception3", 95, 64, 50_000),
    _allreduce("inception3", 95, 128, 33_000),
    _allreduce("resnet50", 102, 64, 76_000),
    _allreduce("resnet50", 102, 128, 48_000),
    _allreduce("resnet50", 102, 256, 28_000),
    _allreduce("vgg16", 553, 64, 62_000),
    _allreduce("vgg16", 553, 128, 37_000),
    _allreduce("vgg16", 553, 256, 20_000),
)

CATALOGUE: Mapping[str, ModelProfile] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            *_PS_PROFILES,
            *(replace(profile, name=f"{profile.name}-async", kind=JobKind.ASYNC) for profile in _PS_PROFILES),
            *_ALLREDUCE_PROFILES,
        )
    }
)
"""Every type by name; the first eight in the order of the authors' table (which is also the order of type numbers)."""


def model_names(kind: JobKind, on_gpus: bool = False) -> tuple[str, ...]:
    """The types of one kind; only those whose workers need a GPU, if wished."""
    return tuple(
        name
        for name, profile in CATALOGUE.items()
        if profile.kind is kind and (profile.worker_demand.gpu > 0 or not on_gpus)
    )


MODEL_NAMES: tuple[str, ...] = model_names(JobKind.PS)
"""DL2's models: what a generated workload is made of unless it says otherwise."""

ALLREDUCE_MODEL_NAMES: tuple[str, ...] = model_names(JobKind.ALLREDUCE)

_OTHER_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "cnn-text-classification": ("cnn-text",),  # the paper's text
        "inception3": ("inception-v3",),
        "resnet-50": ("imagenet",),  # Pollux calls ResNet-50 by its data set
        "resnet50": ("imagenet",),
    }
)
"""What else users and published workloads call a family; capitals, dashes and the like make no difference."""


def _key(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _names_by_kind() -> dict[JobKind, dict[str, str]]:
    """Type name by everything that it may be called; of several batches, a bare model name means the largest."""
    names: dict[JobKind, dict[str, str]] = {kind: {} for kind in JobKind}
    for name, profile in CATALOGUE.items():
        family = profile.family
        for called in (name, family, f"{family}-{profile.kind.value}", *_OTHER_NAMES.get(family, ())):
            names[profile.kind][_key(called)] = name  # a family's largest batch comes last
    return names


_NAMES = _names_by_kind()


def find_model(name: str, kind: JobKind | None = None) -> ModelProfile | None:
    """The profile that a user means by `vgg-16`, `VGG16` or `vgg16-256-allreduce`; None if no type is called so.

    Args:
        kind: of the job. Where it is open, a name that stands for several kinds means the synchronous PS type.
    """
    for candidate in (kind,) if kind else (JobKind.PS, JobKind.ASYNC, JobKind.ALLREDUCE):
        found = _NAMES[candidate].get(_key(name))
        if found is not None:
            return CATALOGUE[found]
    return None
