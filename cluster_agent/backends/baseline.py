"""What the fallback would have done with the same jobs: the figure that a run is read against.

A simulated cluster can be lived through twice. The replays run one after another in a daemon thread beside the
decisions, since they cost seconds and nobody waits for them.
"""

from __future__ import annotations

import math
import threading

import structlog

from cluster_agent.backends.episodes import Episodes
from policy_net.domain import PolicyContext
from policy_net.errors import PolicyNetError
from policy_net.policy import build_policy
from policy_net.simulation.replay import replay

_log = structlog.get_logger()


class Baseline:
    """Completion times under the fallback, per episode, as far as they have been worked out."""

    def __init__(self, episodes: Episodes, fallback: str) -> None:
        self._episodes = episodes
        self._fallback = fallback
        self._seconds: dict[int, dict[str, float]] = {}

    def start(self) -> None:
        """Begin to replay, in the background."""
        threading.Thread(target=self.work_out, name="baseline", daemon=True).start()

    def work_out(self) -> None:
        """Replay every episode; what fails is logged and stays unknown."""
        for index, episode in enumerate(self._episodes.items):
            try:
                policy = build_policy(self._fallback, PolicyContext())
                result = replay(episode.workload, episode.environment, policy, self._episodes.speeds)
            except PolicyNetError as error:
                _log.warning("baseline-unknown", episode=index, error=str(error))
                return
            self._seconds[index] = {
                outcome.job_id: outcome.jct_seconds for outcome in result.outcomes if outcome.jct_seconds is not None
            }

    def average_jct_seconds(self, episode: int, done: frozenset[str] | set[str]) -> float:
        """Over all jobs of the episodes before this one and the given jobs of it; 0 where it is not known."""
        total = 0.0
        jobs = 0
        for index in range(episode + 1):
            known = self._seconds.get(index)
            if known is None or (index == episode and not done <= known.keys()):
                return 0.0
            counted = known.values() if index < episode else [known[job_id] for job_id in done]
            total += math.fsum(counted)  # exact, so that the order of the jobs does not matter
            jobs += len(counted)
        return total / jobs if jobs else 0.0
