"""The simulated cluster as a Gymnasium environment, for agents that are not ours.

Importing this package registers `fedl2/ClusterScheduling-v0`; nothing else in fedl2 imports it.
"""

from policy_net.gym.registration import ENVIRONMENT_ID, register_environments

__all__ = ["ENVIRONMENT_ID", "register_environments"]

register_environments()
