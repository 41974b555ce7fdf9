"""What an agent knows beyond its cluster's state: how often it decided, what its guard did, what it believes of speeds.

Written before a decision is carried out, so that no decision number is used twice: an agent killed in between makes
the same decision again under the next number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from cluster_agent.errors import StateDamaged
from cluster_agent.state_files import read_json, write_json
from policy_net.domain import ClusterState, Progress
from policy_net.errors import BadInput
from policy_net.learning.replay import Experience
from policy_net.learning.settings import RewardKind
from policy_net.policy import Samples
from policy_net.reward import UTILITY_EXPONENT, SlotUtility, paper_reward, slot_utility, utility_over
from policy_net.set_policy.samples import SetSamples
from policy_net.throughput.beliefs import Beliefs

MEMORY = "agent.json"


class AgentMemory:
    """Counts and beliefs on disk."""

    def __init__(
        self, state_dir: Path, beliefs: Beliefs, acting_beliefs: Callable[[], Beliefs | None] = lambda: None
    ) -> None:
        """Read what an earlier life left, if there was one.

        Args:
            beliefs: those of the reward.
            acting_beliefs: those that the policy in office plans on; None if it has none, or is busy with them. What
                was kept of them last is kept until there are others.

        Raises:
            StateDamaged: the file cannot be read back.
        """
        self._path = state_dir / MEMORY
        self._beliefs = beliefs
        self._acting_beliefs = acting_beliefs
        saved = read_json(self._path) or {"decisions": 0, "interventions": {}, "beliefs": {}}
        try:
            self.decisions = int(saved["decisions"])
            self.interventions: dict[str, int] = dict(saved["interventions"])
            beliefs.restore(saved["beliefs"])
            self._acting_snapshot: dict[str, object] | None = saved.get("acting_beliefs")
            acting = acting_beliefs()
            if acting is not None and self._acting_snapshot is not None:
                acting.restore(self._acting_snapshot)
        except (KeyError, TypeError, ValueError, BadInput) as error:
            raise StateDamaged(f"{self._path}: damaged ({error}); remove it to start afresh") from error

    def save(self, decisions: int, interventions: Mapping[str, int]) -> None:
        """Keep the counts and what is believed now."""
        acting = self._acting_beliefs()
        if acting is not None:
            self._acting_snapshot = acting.snapshot()
        content = {
            "decisions": decisions,
            "interventions": dict(interventions),
            "beliefs": self._beliefs.snapshot(),
            "acting_beliefs": self._acting_snapshot,
        }
        write_json(self._path, content)


class BelievedReward:
    """The training reward under this cluster's own beliefs, which it sharpens."""

    def __init__(self, kind: RewardKind, beliefs: Beliefs, utility_exponent: float = UTILITY_EXPONENT) -> None:
        """Args: `utility_exponent` is of the reward of `set` policies, which is over the policy's own beliefs."""
        self._kind = kind
        self._beliefs = beliefs
        self._utility_exponent = utility_exponent

    def live_through(
        self, state: ClusterState, progress: list[Progress], seconds: float, samples: Samples | None
    ) -> tuple[float, Experience | None]:
        """The reward of an interval, and what can be learned from it: nothing without samples.

        The reward is under what was believed at the decision; the beliefs see the interval afterwards, whoever decided.
        """
        utility = None
        if self._kind is RewardKind.PAPER and not isinstance(samples, SetSamples):
            reward = paper_reward(state, progress)
        else:
            self._beliefs.introduce(state.jobs)
            utility = self._utility(state, progress, seconds, samples)
            reward = utility.reward
        self._beliefs.observe(progress)
        if samples is None or seconds <= 0.0 or not math.isfinite(reward):
            return reward, None
        return reward, Experience(samples, reward, seconds, utility=utility, began_seconds=state.time_seconds)

    def _utility(
        self, state: ClusterState, progress: list[Progress], seconds: float, samples: Samples | None
    ) -> SlotUtility:
        if not isinstance(samples, SetSamples):
            return slot_utility(state, progress, self._beliefs, seconds)
        best, planned = samples.believed_J2.T
        return utility_over(state, progress, best, seconds, self._utility_exponent, planned)
