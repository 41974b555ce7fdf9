"""The environment's name in Gymnasium's registry."""

from __future__ import annotations

import gymnasium

ENVIRONMENT_ID = "fedl2/ClusterScheduling-v0"


def register_environments() -> None:
    """Make the environment known to `gymnasium.make`; a second call changes nothing."""
    if ENVIRONMENT_ID not in gymnasium.registry:
        gymnasium.register(
            ENVIRONMENT_ID,
            entry_point="policy_net.gym.environment:ClusterSchedulingEnv",
            # The episode's own limit is counted in decisions, and gymnasium's would be in micro-actions.
            max_episode_steps=None,
        )
