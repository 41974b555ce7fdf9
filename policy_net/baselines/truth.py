"""The one door through which a policy gets the simulator's speeds, for yardsticks that no live cluster can run."""

from __future__ import annotations

from policy_net.domain import PolicyContext, SpeedModel
from policy_net.errors import BadInput


def true_speeds_for(policy_name: str, context: PolicyContext) -> SpeedModel:
    """The true speeds of the context.

    Raises:
        BadInput: the context has none, as in a live cluster.
    """
    if context.true_speeds is None:
        raise BadInput(
            f"policy {policy_name!r} plans on the simulator's true speeds, which only a simulation has: "
            "use optimus or marginal, which learn speeds from progress"
        )
    return context.true_speeds
