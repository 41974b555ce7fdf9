"""The `set` policy: planner, beliefs and residual; importing the package registers its name, and loads none of them."""

from policy_net.policy import register_policy_of

register_policy_of(
    "policy_net.set_policy.policy",
    {"set": "build_set", "set-fresh": "build_set_fresh", "set-taught": "build_set_taught"},
)
