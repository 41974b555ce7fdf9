"""Optimus on speeds fitted beforehand to measured points: what it can do without learning online.

Source: Optimus (Peng et al., EuroSys 2018) §3.2 and §4.1; the greedy is `optimus.py`'s.
Deviation: the points are those that the user brings, of all types at once, not a few sample runs of every new job.
"""

from __future__ import annotations

from policy_net.baselines.optimus import OptimusPolicy
from policy_net.domain import PolicyContext
from policy_net.errors import BadInput


def build_optimus_fitted(context: PolicyContext) -> OptimusPolicy:
    """Build the policy registered as `optimus-fitted`.

    Raises:
        BadInput: the context has no measured speeds.
    """
    if context.measured_speeds is None:
        raise BadInput(
            "policy 'optimus-fitted' plans on speeds measured beforehand: give them with replay's --fit-points FILE,"
            " or use optimus, which learns speeds from progress"
        )
    return OptimusPolicy("optimus-fitted", context.measured_speeds)
