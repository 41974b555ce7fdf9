"""How fast GPUs of different types compute, for the families of the catalogue.

Only computing gets slower on a slower GPU; what a step spends on the network stays (see `locality`).

Sources, one GPU each: ResNet-50 on V100, P100 and K80 (Gavel, OSDI'20), on T4 (Pollux, OSDI'21) and on A100
(ElasticFlow, ASPLOS'23), each at the batch that was fastest; DeepSpeech 2 on T4 and A100. Within Gavel's types, the
median over batches for ResNet-50, a Transformer and an LSTM language model. Where a class was not measured on a type,
ResNet-50's ratio stands in: V100 to A100 for all, T4 to A100 for attention. How far apart single measurements are:
`benchmarks.speed_fit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from policy_net.domain import JobKind
from policy_net.errors import BadInput
from policy_net.laboratory.catalogue import ModelProfile


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
