"""What the weights of a `set` policy are for: any number of jobs, every one through the same small network.

The network turns a job's ratios, and their products with contention, into a tilt of the planner's scores; see
`policy_net.set_policy`. There are no job types in it and no J, so one set of weights serves clusters of every size.
"""

from __future__ import annotations

import itertools

from pydantic import Field, model_validator

from policy_net.exchange.spec import PolicySpec, WeightSpec

SET = "set"

SET_FEATURE_VERSION = 1
"""Raised whenever the meaning of an input changes."""

SET_INPUTS = 21
"""Numbers that the network sees of a job."""

SET_OUTPUTS = 2
"""Priority and steepness of a job."""


class SetSpec(WeightSpec):
    """The shape and meaning of a `set` policy's weights."""

    reads = (SET, SET_FEATURE_VERSION)

    policy: str = SET
    hidden: tuple[int, ...] = Field((), description="widths of the hidden layers; none makes it linear")
    bound: float = Field(1.5, gt=0.0, le=10.0, description="largest size of a tilt, in nats of a score")
    temperature: float = Field(
        0.2, gt=0.0, le=100.0, description="of the softmax over log scores, in nats, where picks are drawn"
    )
    set_feature_version: int = SET_FEATURE_VERSION

    @model_validator(mode="after")
    def _widths_are_sane(self) -> SetSpec:
        if any(width < 1 or width > 4096 for width in self.hidden):
            raise ValueError("hidden widths must lie between 1 and 4096")
        return self

    @property
    def written_for(self) -> tuple[str, int]:
        """The kind of policy and the version of its features."""
        return self.policy, self.set_feature_version

    def layout(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes of all tensors, in the order of the flat vector."""
        tensors: list[tuple[str, tuple[int, ...]]] = []
        for layer, (inputs, width) in enumerate(itertools.pairwise((SET_INPUTS, *self.hidden, SET_OUTPUTS))):
            tensors += [(f"residual.{layer}.weight", (width, inputs)), (f"residual.{layer}.bias", (width,))]
        return tuple(tensors)


Spec = PolicySpec | SetSpec
"""Every kind of spec that there is."""
