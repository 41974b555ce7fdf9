"""The `dl2` policy: actions, inputs and masks of a batch of jobs, its network, and groups of decisions to learn from.

Importing the package registers its name, and loads none of them.
"""

from policy_net.policy import register_policy_of

register_policy_of("policy_net.dl2.policy", {"dl2": "build_dl2"})
