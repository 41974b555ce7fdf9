"""What the fallback would have done with the same jobs: the figure that a run is read against.

A simulated cluster can be lived through twice. The replays run in a daemon thread beside the decisions, since they cost
seconds and nobody waits for them.
"""

from __future__ import annotations

import math
import threading

import structlog

import policy_net.baselines  # noqa: F401  (registers the schedulers' names)
from cluster_agent.backends.episodes import Episodes
from policy_net.domain import PolicyContext
from policy_net.errors import PolicyNetError
from policy_net.laboratory.simulation.replay import replay
from policy_net.policy import build_policy

_log = structlog.get_logger()


class Baseline:
    """Completion times under the fallback, per episode, as far as they have been worked out."""

    def __init__(self, episodes: Episodes, fallback: str) -> None:
        self._episodes = episodes
        self._fallback = fallback
        self._seconds: dict[int, dict[str, float]] = {}
        self._reached = threading.Semaphore(1)
        self._latest = 0

    def start(self) -> None:
        """Begin to replay in the background, each episode once the run has reached it."""
        threading.Thread(target=self._work, name="baseline", daemon=True).start()

    def work_out(self, index: int) -> None:
        """Replay one episode.

        Raises:
            PolicyNetError: the fallback cannot finish it.
        """
        episode = self._episodes.items[index]
        policy = build_policy(self._fallback, PolicyContext())
        effect = self._episodes.placement_effect
        result = replay(episode.workload, episode.environment, policy, self._episodes.speeds, placement_effect=effect)
        self._seconds[index] = {
            outcome.job_id: outcome.jct_seconds for outcome in result.outcomes if outcome.jct_seconds is not None
        }

    def average_jct_seconds(self, episode: int, done: set[str]) -> float:
        """Over all jobs of the episodes before this one and the given jobs of it; 0 where it is not known (yet)."""
        self._reach(episode)
        total_seconds = 0.0
        jobs = 0
        for index in range(episode + 1):
            known = self._seconds.get(index)
            if known is None or (index == episode and not done <= known.keys()):
                return 0.0
            counted = known.values() if index < episode else [known[job_id] for job_id in done]
            total_seconds += math.fsum(counted)  # exact, so that the order of the jobs does not matter
            jobs += len(counted)
        return total_seconds / jobs if jobs else 0.0

    def _reach(self, episode: int) -> None:
        while self._latest < episode:
            self._latest += 1
            self._reached.release()

    def _work(self) -> None:
        for index in range(len(self._episodes.items)):
            self._reached.acquire()
            try:
                self.work_out(index)
            except PolicyNetError as error:
                _log.warning("baseline-unknown", episode=index, error=str(error))
                return
