"""Placement effect: how much slower a job trains when its workers lie apart, or on slower GPUs, as was measured.

Lying apart, for all-reduce jobs. With n workers on m ≥ 2 nodes a step lasts `1 + slowdown` times what it would on one
node, where slowdown = a + b·log2(n/2) on two nodes and c + d·log2(n/3) on more. Two nodes have constants of their own
since real clusters are not monotone: BERT on T4s runs at 43 samples/s on one node of 4, at 15 on 2+2 and at 25 on
1+1+1+1; VGG-16 at 1, 0.58 and 0.32. How workers divide over the nodes hardly matters beyond m, and is left out.

- bert, deepspeech2, resnet50: Pollux (OSDI'21; Apache-2.0), 104 placements of 2–16 T4s on nodes of 4, median over
  batches of one GPU. Beyond 4 GPUs "one node" is the step on 4 (the GPUs' batches stay the same).
- inception3, vgg16: Chronus (SoCC'21; MIT), 2–8 GPUs on 2 and 4 nodes.
- Others: the measured family with the same kind of arithmetic whose model is nearest in size: gpt2 as bert.

PS jobs, synchronous or not: no effect. Their workers reach servers over the network wherever they lie, and their speeds
were measured that way. Jobs of types that the catalogue does not know: no effect either.

GPU types. Computing takes longer on slower GPUs, the network does not. Of several types in one job the slowest sets the
pace of synchronous and all-reduce jobs; asynchronous workers each keep their own. The share of computing in a step is
that of the fitted forms (for PS jobs: with as many servers as workers). CPU workers are not affected.

Sources of the GPUs' speeds, one GPU each: ResNet-50 on V100, P100 and K80 (Gavel, OSDI'20), on T4 (Pollux, OSDI'21) and
on A100 (ElasticFlow, ASPLOS'23), each at the batch that was fastest; DeepSpeech 2 on T4 and A100. Within Gavel's types,
the median over batches for ResNet-50, a Transformer and an LSTM language model. Where a class was not measured on a
type, ResNet-50's ratio stands in: V100 to A100 for all, T4 to A100 for attention. How far apart single measurements
are: `benchmarks.speed_fit`.

Deviation: the speeds of 9–16 all-reduce workers were measured on two (well connected) nodes and count as one node's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import log, log2
from types import MappingProxyType

from policy_net.domain import JobKind, PlacementEffect
from policy_net.errors import BadInput
from policy_net.laboratory.catalogue import CATALOGUE, ModelProfile
from policy_net.laboratory.speeds.fitted_speeds import FITTED_QUEUES, FITTED_RINGS, WELL_CONNECTED


class Arithmetic(Enum):
    """What a model's time goes into."""

    CONVOLUTION = "convolution"
    RECURRENCE = "recurrence"
    ATTENTION = "attention"


GPU_SPEEDS: Mapping[Arithmetic, Mapping[str, float]] = MappingProxyType(
    {
        Arithmetic.CONVOLUTION: {"a100": 1.0, "v100": 0.678, "t4": 0.459, "p100": 0.428, "k80": 0.101},
        Arithmetic.RECURRENCE: {"a100": 1.0, "v100": 0.678, "t4": 0.348, "p100": 0.565, "k80": 0.173},
        Arithmetic.ATTENTION: {"a100": 1.0, "v100": 0.678, "t4": 0.459, "p100": 0.502, "k80": 0.195},
    }
)
"""Computing speed over an A100's."""

GPU_TYPES: tuple[str, ...] = tuple(GPU_SPEEDS[Arithmetic.CONVOLUTION])

MEASURED_ON: Mapping[JobKind, str] = MappingProxyType(
    {JobKind.ALLREDUCE: "a100", JobKind.PS: "p100", JobKind.ASYNC: "p100"}
)
"""The GPUs that the speeds of a kind were measured on. DL2's were GTX 1080 Ti, of P100's generation and about its
single-precision speed, which are taken for P100s."""

ARITHMETIC: Mapping[str, Arithmetic] = MappingProxyType(
    {
        "bert": Arithmetic.ATTENTION,
        "gpt2": Arithmetic.ATTENTION,
        "deepspeech2": Arithmetic.RECURRENCE,
        "seq2seq": Arithmetic.RECURRENCE,
        "wlm": Arithmetic.RECURRENCE,
    }
)
"""By family; convolution otherwise."""


def arithmetic_of(family: str) -> Arithmetic:
    """What a family's time goes into; convolution, the commonest, where it is not known."""
    return ARITHMETIC.get(family, Arithmetic.CONVOLUTION)


def compute_speed(profile: ModelProfile, gpu_type: str) -> float:
    """Computing speed on such a GPU over that on the GPU which the type's speeds were measured on; 1 if none is named.

    Raises:
        BadInput: the type of GPU is not known.
    """
    if not gpu_type:
        return 1.0
    check_gpu_type(gpu_type)
    speeds = GPU_SPEEDS[arithmetic_of(profile.family)]
    return speeds[gpu_type.lower()] / speeds[MEASURED_ON[profile.kind]]


def check_gpu_type(gpu_type: str) -> None:
    """Raise BadInput if nothing is known about such GPUs; capitals make no difference."""
    if gpu_type.lower() not in GPU_TYPES:
        raise BadInput(f"GPU type {gpu_type!r} has no known speed; use one of {', '.join(GPU_TYPES)}")


@dataclass(frozen=True, slots=True)
class SpreadConstants:
    """How much longer a step takes than on one node: the share added, and its growth with the number of workers."""

    two_nodes: float
    two_nodes_growth: float
    more_nodes: float
    more_nodes_growth: float


FITTED_SPREADS: Mapping[str, SpreadConstants] = MappingProxyType(
    {
        "bert": SpreadConstants(0.999, 0.715, 0.665, 0.281),
        "deepspeech2": SpreadConstants(0.055, 0.191, 0.0, 0.143),
        "resnet50": SpreadConstants(0.085, 0.222, 0.0, 0.107),
        "inception3": SpreadConstants(0.0, 0.035, 0.0, 0.096),
        "vgg16": SpreadConstants(0.16, 0.302, 1.862, 0.686),
    }
)
"""By family."""

_KEPT_SHAPES = 65_536
"""Relative speeds kept in memory: shapes recur, and there are few."""


def spread_features(workers: int, nodes: int) -> tuple[float, float, float, float]:
    """What the four constants are multiplied by; all zero on one node."""
    if nodes <= 1:
        return (0.0, 0.0, 0.0, 0.0)
    if nodes == 2:
        return (1.0, log2(workers / 2), 0.0, 0.0)
    return (0.0, 0.0, 1.0, log2(workers / 3))


def spread_slowdown(constants: SpreadConstants, workers: int, nodes: int) -> float:
    """The share by which a step is longer than on one node."""
    two, two_growth, more, more_growth = spread_features(workers, nodes)
    return (
        constants.two_nodes * two
        + constants.two_nodes_growth * two_growth
        + constants.more_nodes * more
        + constants.more_nodes_growth * more_growth
    )


def spread_constants(profile: ModelProfile) -> SpreadConstants:
    """The family's, or those of the nearest measured family in size with the same kind of arithmetic."""
    measured = FITTED_SPREADS.get(profile.family)
    if measured is not None:
        return measured
    sizes = {item.family: item.size_megabytes for item in CATALOGUE.values() if item.family in FITTED_SPREADS}
    alike = [name for name in sizes if arithmetic_of(name) is arithmetic_of(profile.family)] or list(sizes)
    return FITTED_SPREADS[min(alike, key=lambda name: abs(log(sizes[name] / profile.size_megabytes)))]


@dataclass(frozen=True, slots=True)
class FittedPlacementEffect:
    """The effect of the catalogue's types; types that it does not have run at their full speed anywhere.

    Attributes:
        apart: whether it matters over how many nodes workers lie; GPU types always do.
    """

    apart: bool = True

    def relative_speed(self, job_type: str, workers_by_node: Sequence[tuple[str, int]]) -> float:
        """Speed there over the speed model's, above 0; above 1 on faster GPUs than the model's.

        Raises:
            BadInput: the type of a GPU is not known.
        """
        return _of_shape(job_type, tuple(workers_by_node), self.apart)


@lru_cache(maxsize=_KEPT_SHAPES)
def _of_shape(job_type: str, shape: tuple[tuple[str, int], ...], apart: bool) -> float:
    profile = CATALOGUE.get(job_type)
    workers = sum(count for _, count in shape)
    if profile is None or workers == 0:
        return 1.0
    spread = 0.0
    if apart and profile.kind is JobKind.ALLREDUCE:
        nodes = sum(count > 0 for _, count in shape)
        spread = spread_slowdown(spread_constants(profile), workers, nodes)
    longer = 0.0
    if profile.worker_demand.gpu:
        longer = _computing_share(profile, workers) * (1 / _pace(profile, shape, workers) - 1)
    return 1 / (1 + spread + longer)


def _pace(profile: ModelProfile, shape: tuple[tuple[str, int], ...], workers: int) -> float:
    """Computing speed of the job's GPUs together, over that of as many of the GPUs it was measured on."""
    speeds = [(compute_speed(profile, gpu_type), count) for gpu_type, count in shape if count > 0]
    if profile.kind is JobKind.ASYNC:
        return sum(speed * count for speed, count in speeds) / workers
    return min(speed for speed, _ in speeds)


def _computing_share(profile: ModelProfile, workers: int) -> float:
    if profile.kind is JobKind.ALLREDUCE:
        ring = FITTED_RINGS[profile.family]
        computing = ring.per_sample * profile.global_batch / workers
        rest = ring.fixed + ring.ring * (workers - 1) / workers + ring.per_peer * min(workers - 1, WELL_CONNECTED - 1)
        if workers > WELL_CONNECTED:
            rest += ring.per_doubling * log2(workers / WELL_CONNECTED)
        return computing / (computing + rest)
    queue = FITTED_QUEUES[profile.family]
    if profile.kind is JobKind.ASYNC:
        computing = queue.compute + queue.latency
        return computing / (computing + queue.server / workers + queue.shared)
    computing = queue.compute / workers + queue.latency
    return computing / (computing + queue.server + workers * queue.shared)


def default_placement_effect() -> PlacementEffect:
    """The fitted effect of places and GPU types."""
    return FittedPlacementEffect()
