"""What travels between agents and the learner, as plain values; `fleet.proto` is their wire form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from policy_net.exchange.spec import Weights, WeightSpec


@dataclass(frozen=True, slots=True)
class GradientUpdate:
    """One cluster's gradient of the loss at a head step; (cluster, incarnation, sequence) names it for ever.

    Attributes:
        base_step: the learner head's step at which the gradient was computed.
        gradient: float32, shape (parameter_count,); descent goes along its negative.
        samples: micro-actions that it was computed from.
        effective_samples: the same after importance weighting.
    """

    cluster: str
    incarnation: int
    sequence: int
    base_step: int
    spec_digest: str
    gradient: Weights
    samples: int
    effective_samples: float
    statistics: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


class RoundKind(StrEnum):
    """What a round asks for."""

    TRAIN = "train"
    EVALUATE = "evaluate"


@dataclass(frozen=True, slots=True)
class RoundTask:
    """What a round asks of a cluster.

    Attributes:
        task: names it; the answer repeats it.
        weights: where to start, shape (parameter_count,).
        numbers: the strategy's configuration, as are `texts`.
    """

    task: str
    kind: RoundKind
    weights: Weights
    spec_digest: str
    numbers: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    texts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class RoundAnswer:
    """A cluster's answer to a task.

    Attributes:
        weights: of a train task: where the cluster ended; empty otherwise.
        samples: micro-actions that the answer was computed from.
        error: not empty: there is no answer, and why.
    """

    task: str
    weights: Weights
    samples: int
    metrics: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    error: str = ""


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """An immutable, published snapshot: v1, v2 …"""

    version: int
    spec: WeightSpec
    weights: Weights
    head_step: int
    digest: str

    @property
    def name(self) -> str:
        """How people call it: `v7`."""
        return f"v{self.version}"
