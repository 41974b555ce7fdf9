"""Specifications of weights: the shapes, the features and the vocabulary that a policy was built with.

Two programs that agree on a spec's digest agree on the meaning of every float in the flat weight vector; the learner
and every agent compare it before anything is applied. There is a spec for each kind of policy:

- `PolicySpec`, of `dl2`. Source: DL2 §4.1 (J jobs a batch, 3J+1 actions, two hidden layers of 256), §6.5.1 (without
  bundles, for comparison: those actions are never admissible, and shapes stay as they are). Deviation: the job
  type is one-hot over a fixed number of reserved columns (the paper's text; the authors' code writes it in four bits),
  so that the vocabulary can grow without a change of shape; and where groups of decisions teach, the actor is all.
- `SetSpec`, of `set`: any number of jobs, every one through the same small network. It turns a job's ratios, and their
  products with contention, into a tilt of the planner's scores; see `policy_net.set_policy`. There are no job types in
  it and no J, so one set of weights serves clusters of every size. The planner's own numbers may be among the weights,
  group by group, each with a version of its own.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from foundation.text import plain_line
from policy_net.errors import BadInput, PolicyFileError, SpecMismatch
from policy_net.settings_problems import FileWords, first_problems

FEATURE_VERSION = 1
"""Raised whenever the meaning of an input column changes."""

SCALARS_PER_JOB = 5
"""d, e, r, w, u: slots run, remaining epochs, dominant share, workers, parameter servers. Source: DL2 §4.1."""

OTHER_TYPE = "other"
"""The reserved type of every job whose model is not in the vocabulary; always column 0."""

SET = "set"
SET_TAUGHT = "set-taught"
DL2 = "dl2"

SET_FEATURE_VERSION = 1
"""Raised whenever the meaning of an input changes."""

SET_INPUTS = 21
"""Numbers that the network sees of a job."""

SET_OUTPUTS = 2
"""Priority and steepness of a job."""

PRICES = "prices"
"""The tensor of the numbers that the planner's prices follow from."""

PRICES_VERSION = 1
"""Raised whenever the meaning of one of them changes."""

PRICE_COUNT = 6
"""See `policy_net.set_policy.steps`."""

SESSIONS = "sessions"
"""The tensor of the numbers of the model of sessions."""

SESSIONS_VERSION = 1
"""Raised whenever the model changes, or the meaning of one of its numbers."""

SESSION_COUNT = 3
"""See `policy_net.set_policy.sessions`."""


class WeightSpec(BaseModel):
    """What every kind of policy says of its weights; frozen, compared by `digest`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version_field: ClassVar[str]
    """The field with the version of the features; its default is the one that this program reads."""

    policy: str

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a spec.

        Raises:
            PolicyFileError: the text is no spec that this program reads.
        """
        try:
            spec = cls.model_validate_json(text)
        except ValidationError as error:
            message = plain_line(first_problems(error, cls, FileWords("field", json=True)))
            raise PolicyFileError(f"policy spec: {message}") from error
        policy, version = spec.policy, getattr(spec, cls.version_field)
        read_policy, read_version = (cls.model_fields[name].default for name in ("policy", cls.version_field))
        if (policy, version) != (read_policy, read_version):
            raise PolicyFileError(
                f"policy spec is for {policy!r} with feature version {version}; "
                f"this program reads {read_policy!r} with feature version {read_version}"
            )
        return spec

    def layout(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes of all tensors, in the order of the flat vector."""
        raise NotImplementedError

    @property
    def learns_live(self) -> bool:
        """Whether rewards of live decisions can teach such weights; else replays of clusters' pasts alone."""
        return True

    @property
    def parameter_count(self) -> int:
        """Length of the flat weight vector."""
        return sum(prod(shape) for _, shape in self.layout())

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, hex."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


class PolicySpec(WeightSpec):
    """The shape and meaning of a `dl2` policy's weights."""

    version_field = "feature_version"

    policy: str = DL2
    jobs_per_batch: int = Field(20, ge=1, le=1024, description="J: how many jobs one forward pass sees")
    type_columns: int = Field(12, ge=1, le=4096, description="L: reserved one-hot columns, column 0 is `other`")
    job_types: tuple[str, ...] = Field((OTHER_TYPE,), description="the vocabulary; the index is the column")
    hidden: tuple[int, ...] = Field((256, 256), description="widths of the hidden layers, actor and critic alike")
    feature_version: int = FEATURE_VERSION
    bundles: bool = Field(True, description="whether one action may give a worker and a parameter server together")
    critic: bool = Field(True, description="whether there is a critic; groups of decisions need none")
    reserves: bool = Field(False, description="whether a batch leaves later ones their jobs' part of the cluster")

    @model_serializer(mode="wrap")
    def _without_what_is_usual(self, usual: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Choices are named where they are not as they always were, so that specs of before keep their digests."""
        before = {"bundles": True, "critic": True, "reserves": False}
        fields: dict[str, Any] = usual(self)
        return {name: value for name, value in fields.items() if name not in before or value != before[name]}

    @model_validator(mode="after")
    def _vocabulary_fits(self) -> PolicySpec:
        if not self.job_types or self.job_types[0] != OTHER_TYPE:
            raise ValueError(f"job_types must begin with {OTHER_TYPE!r}")
        if len(set(self.job_types)) != len(self.job_types):
            raise ValueError("job_types names a type twice")
        if len(self.job_types) > self.type_columns:
            raise ValueError(f"{len(self.job_types)} job types do not fit {self.type_columns} type_columns")
        if any(width < 1 or width > 65536 for width in self.hidden):
            raise ValueError("hidden widths must lie between 1 and 65536")
        return self

    @property
    def feature_count(self) -> int:
        """Width of the input: J × (L + 5)."""
        return self.jobs_per_batch * (self.type_columns + SCALARS_PER_JOB)

    @property
    def action_count(self) -> int:
        """3J + 1. Source: DL2 §4.1."""
        return 3 * self.jobs_per_batch + 1

    @property
    def learns_live(self) -> bool:
        """See `WeightSpec`."""
        return self.critic

    def need_critic(self) -> None:
        """See that there is a critic.

        Raises:
            BadInput: there is none.
        """
        if not self.critic:
            raise BadInput(
                "this dl2 policy has no critic, and rewards of decisions need one: teach it by replays (an agent's "
                "learning.source: auto; policy-net train without --reward and dl2.method), or begin with a policy of "
                "`policy-net train --reward slot-utility`"
            )

    def layout(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes of all tensors, in the order of the flat vector: the actor's, then the critic's."""
        tensors: list[tuple[str, tuple[int, ...]]] = []
        for net, outputs in (("actor", self.action_count), ("critic", 1))[: 2 if self.critic else 1]:
            widths = (self.feature_count, *self.hidden, outputs)
            for layer, (inputs, width) in enumerate(itertools.pairwise(widths)):
                tensors += [(f"{net}.{layer}.weight", (width, inputs)), (f"{net}.{layer}.bias", (width,))]
        return tuple(tensors)


class SetSpec(WeightSpec):
    """The shape and meaning of a `set` policy's weights."""

    version_field = "set_feature_version"

    policy: str = SET
    hidden: tuple[int, ...] = Field((), description="widths of the hidden layers; none makes it linear")
    bound: float = Field(1.5, gt=0.0, le=10.0, description="largest size of a tilt, in nats of a score")
    temperature: float = Field(
        0.2, gt=0.0, le=100.0, description="of the softmax over log scores, in nats, where picks are drawn"
    )
    set_feature_version: int = SET_FEATURE_VERSION
    prices: int = Field(
        0, ge=0, le=PRICES_VERSION, description="version of the planner's prices among the weights; 0 is without them"
    )
    sessions: int = Field(
        0, ge=0, le=SESSIONS_VERSION, description="version of the model of sessions of unknown work; 0 is without it"
    )

    @model_serializer(mode="wrap")
    def _without_absent_groups(self, usual: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What a spec does not have it does not name, so that those from before there was such a thing keep digests."""
        fields: dict[str, Any] = usual(self)
        return {name: value for name, value in fields.items() if name not in (PRICES, SESSIONS) or value}

    @model_validator(mode="after")
    def _widths_are_sane(self) -> SetSpec:
        if any(width < 1 or width > 4096 for width in self.hidden):
            raise ValueError("hidden widths must lie between 1 and 4096")
        return self

    def layout(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes of all tensors, in the order of the flat vector."""
        tensors: list[tuple[str, tuple[int, ...]]] = []
        for layer, (inputs, width) in enumerate(itertools.pairwise((SET_INPUTS, *self.hidden, SET_OUTPUTS))):
            tensors += [(f"residual.{layer}.weight", (width, inputs)), (f"residual.{layer}.bias", (width,))]
        if self.prices:
            tensors.append((PRICES, (PRICE_COUNT,)))
        if self.sessions:
            tensors.append((SESSIONS, (SESSION_COUNT,)))
        return tuple(tensors)


Spec = PolicySpec | SetSpec
"""Every kind of spec that there is."""

Weights = NDArray[np.float32]
"""A flat weight vector (or a gradient of one), shape (parameter_count,)."""


def weights_to_bytes(weights: Weights) -> bytes:
    """The flat vector as little-endian float32, exactly."""
    return np.ascontiguousarray(weights, dtype="<f4").tobytes()


def weights_from_bytes(data: bytes, spec: WeightSpec) -> Weights:
    """A read-only flat vector on `data`.

    Raises:
        SpecMismatch: the length is not the spec's.
    """
    expected = 4 * spec.parameter_count
    if len(data) != expected:
        raise SpecMismatch(f"weights have {len(data)} bytes, the spec {spec.digest[:12]} needs {expected}")
    return np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False)


def split_weights(weights: Weights, spec: WeightSpec) -> dict[str, NDArray[np.float32]]:
    """Named views into the flat vector, in the layout's order.

    Raises:
        SpecMismatch: the vector has another length than the spec's.
    """
    if weights.shape != (spec.parameter_count,):
        raise SpecMismatch(f"weights have shape {weights.shape}, the spec needs ({spec.parameter_count},)")
    views: dict[str, NDArray[np.float32]] = {}
    start = 0
    for name, shape in spec.layout():
        size = prod(shape)
        views[name] = weights[start : start + size].reshape(shape)
        start += size
    return views
