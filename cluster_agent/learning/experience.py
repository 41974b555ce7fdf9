"""Experience on its way to the trainer: the reward of an interval, and the queue in which the loop leaves it.

The loop never waits here. The queue is bounded: when the trainer is behind (or the learner away) the oldest experience
makes room, and is counted.
"""

from __future__ import annotations

import math
import threading
from collections import deque

from policy_net.baselines.hull import FAIRNESS_EXPONENT
from policy_net.domain import ClusterState, Progress, RewardKind
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.learning.replay import Experience
from policy_net.learning.reward import (
    SlotUtility,
    paper_reward,
    progress_shares,
    slot_utility,
    utility_over,
)
from policy_net.policy import Samples
from policy_net.set_policy.planner import SetSamples
from policy_net.throughput.beliefs import Beliefs


class BelievedReward:
    """The training reward under this cluster's own beliefs, which every interval makes sharper."""

    def __init__(self, kind: RewardKind, beliefs: Beliefs, utility_exponent: float = FAIRNESS_EXPONENT) -> None:
        """Args: `utility_exponent` is of the reward of `set` policies, which is over the policy's own beliefs."""
        self._kind = kind
        self._beliefs = beliefs
        self._utility_exponent = utility_exponent
        self._lock = threading.Lock()

    def statistics(self) -> tuple[SpeedStatistic, ...]:
        """What this cluster has seen of speeds, whoever decided; callable from any thread."""
        with self._lock:
            return self._beliefs.statistics()

    def learn_from(
        self, state: ClusterState, progress: list[Progress], seconds: float, samples: Samples | None
    ) -> tuple[float, Experience | None]:
        """The reward of an interval, and what can be learned from it: nothing without samples.

        The reward is under what was believed at the decision; the beliefs see the interval afterwards, whoever decided.
        """
        utility = None
        with self._lock:
            self._beliefs.introduce(state.jobs)
        if self._kind is RewardKind.PAPER and not isinstance(samples, SetSamples):
            reward = paper_reward(state, progress)
        else:
            utility = self._utility(state, progress, seconds, samples)
            reward = utility.reward
        with self._lock:
            self._beliefs.observe(progress)
        if samples is None or seconds <= 0.0 or not math.isfinite(reward):
            return reward, None
        return reward, Experience(samples, reward, seconds, utility=utility, began_seconds=state.time_seconds)

    def _utility(
        self, state: ClusterState, progress: list[Progress], seconds: float, samples: Samples | None
    ) -> SlotUtility:
        if not isinstance(samples, SetSamples):
            if self._kind is RewardKind.OWN_JOB:
                return progress_shares(state, progress)
            return slot_utility(state, progress, self._beliefs, seconds)
        best, planned = samples.believed_J2.T
        return utility_over(state, progress, best, seconds, self._utility_exponent, planned)


class ExperienceQueue:
    """A bounded queue that counts what it lost; also the `Backlog` that lockstep watches."""

    def __init__(self, capacity: int) -> None:
        self._entries: deque[Experience] = deque()
        self._capacity = capacity
        self._changed = threading.Condition()
        self._taken = 0
        self.worked_off = 0
        self.dropped = 0

    @property
    def waiting(self) -> int:
        """Decisions that have not been learned from yet, the one in the trainer's hands included."""
        with self._changed:
            return len(self._entries) + self._taken - self.worked_off

    def put(self, experience: Experience) -> None:
        """Leave one; drops the oldest if there is no room."""
        with self._changed:
            if len(self._entries) >= self._capacity:
                self._entries.popleft()
                self.dropped += 1
            self._entries.append(experience)
            self._changed.notify()

    def take(self, timeout_seconds: float) -> Experience | None:
        """The oldest; None if none came in time."""
        with self._changed:
            if not self._entries:
                self._changed.wait(timeout_seconds)
            if not self._entries:
                return None
            self._taken += 1
            return self._entries.popleft()

    def done(self) -> None:
        """One that was taken has been worked off."""
        with self._changed:
            self.worked_off += 1
