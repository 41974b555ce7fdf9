"""Which gradient belongs to which kind of policy; the one place that knows them all."""

from __future__ import annotations

from policy_net.exchange.set_spec import SetSpec
from policy_net.exchange.spec import PolicySpec, WeightSpec
from policy_net.learning.gradient import Gradients
from policy_net.learning.residual_gradient import ResidualGradient
from policy_net.learning.settings import ActorCriticSettings, ResidualSettings


def gradients_for(
    spec: WeightSpec, actor_critic: ActorCriticSettings, residual: ResidualSettings, seed: int
) -> Gradients:
    """A computer of gradients for policies of this spec; `seed` draws its mini-batches, where it has any.

    Raises:
        TypeError: policies of this kind do not learn online.
    """
    if isinstance(spec, SetSpec):
        return ResidualGradient(spec, residual)
    if not isinstance(spec, PolicySpec):
        raise TypeError(f"policies of kind {spec.policy!r} do not learn online")
    # torch takes a second to import and threads to run: only who trains a network pays.
    import torch  # noqa: PLC0415

    from policy_net.learning.actor_critic import GradientComputer  # noqa: PLC0415

    torch.set_num_threads(1)  # agents and learner share a machine's cores; the nets are small
    return GradientComputer(spec, actor_critic, seed)


def how_many_segments(
    spec: WeightSpec, actor_critic: ActorCriticSettings, residual: ResidualSettings
) -> tuple[int, int]:
    """How many segments an update of this kind wants, and of how many decision times."""
    settings = residual if isinstance(spec, SetSpec) else actor_critic
    return settings.segments, settings.segment_decisions
