"""The simulated cluster as a Gymnasium environment, for agents that are not ours.

Importing this package registers `fedl2/ClusterScheduling-v0`; nothing else in fedl2 imports it.
"""

from __future__ import annotations

import gymnasium

__all__ = ["ENVIRONMENT_ID", "register_environments"]

ENVIRONMENT_ID = "fedl2/ClusterScheduling-v0"
"""The environment's name in Gymnasium's registry."""


def register_environments() -> None:
    """Make the environment known to `gymnasium.make`; a second call changes nothing."""
    if ENVIRONMENT_ID not in gymnasium.registry:
        gymnasium.register(
            ENVIRONMENT_ID,
            entry_point="policy_net.gym.environment:ClusterSchedulingEnv",
            # The episode's own limit is counted in decisions, and gymnasium's would be in micro-actions.
            max_episode_steps=None,
        )


register_environments()
