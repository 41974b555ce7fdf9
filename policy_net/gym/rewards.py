"""Rewards of an agent, paid when a decision has run its course.

`jct`: minus the time that jobs spent in the system, in job-slots. Over an episode that drains the workload, the rewards
add up to minus the sum of completion times (in slots), whatever happened in between: the figure that people care about.
`slot-utility`: the reward that our own learner climbs (`policy_net.learning.reward`), about 0 to 1 a decision. Denser,
but a sum of it over an episode favours slow ones, as they have more decisions: use it with a fixed horizon or
discounting.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from policy_net.domain import ClusterState, Progress
from policy_net.learning.reward import slot_utility_reward
from policy_net.throughput.parametric import OnlineFit


class GymReward(StrEnum):
    """Which figure an agent is paid."""

    JCT = "jct"
    SLOT_UTILITY = "slot-utility"


class JctReward:
    """Minus the job-slots since the decision before, waiting for the first decision included."""

    def __init__(self) -> None:
        self._charged_until: dict[str, float] = {}

    def __call__(self, state: ClusterState, progress: Sequence[Progress], until_seconds: float) -> float:
        """The reward of the interval from `state` to `until_seconds`, the next decision or the end of all jobs."""
        ends = {
            entry.job_id: state.time_seconds + entry.paused_seconds + entry.seconds
            for entry in progress
            if entry.finished
        }
        job_seconds = 0.0
        still_here: dict[str, float] = {}
        for job in state.jobs:
            since = self._charged_until.get(job.job_id, job.submit_time_seconds)
            end = ends.get(job.job_id)
            if end is None:
                still_here[job.job_id] = end = until_seconds
            job_seconds += end - since
        self._charged_until = still_here
        return -job_seconds / state.slot_seconds


class SlotUtilityReward:
    """The slot utility of the interval, against speeds believed from what this episode has shown."""

    def __init__(self) -> None:
        self._beliefs = OnlineFit()

    def __call__(self, state: ClusterState, progress: Sequence[Progress], until_seconds: float) -> float:
        """The reward of the interval from `state` to `until_seconds`."""
        self._beliefs.introduce(state.jobs)
        reward = slot_utility_reward(state, progress, self._beliefs, until_seconds - state.time_seconds)
        self._beliefs.observe(progress)
        return reward


def new_reward(kind: GymReward) -> JctReward | SlotUtilityReward:
    """The reward of one episode."""
    return JctReward() if kind is GymReward.JCT else SlotUtilityReward()
