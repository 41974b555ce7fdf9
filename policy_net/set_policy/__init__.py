"""The `set` policy: planner, beliefs and residual; importing the package registers its name."""

from policy_net.policy import register_policy
from policy_net.set_policy.policy import SetPolicy, build_set, build_set_fresh

__all__ = ["SetPolicy", "build_set"]

register_policy("set", build_set)
register_policy("set-fresh", build_set_fresh)
