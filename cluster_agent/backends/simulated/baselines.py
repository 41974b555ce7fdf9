"""Baselines of a simulated cluster: completion times and load of the same jobs under other schedulers.

The fallback, which its operator chose; FIFO with EASY backfill, which most clusters run; and what really scheduled the
jobs, where a recording says when each of them started and ended.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

import policy_net.baselines  # noqa: F401  (registers the schedulers' names)
from cluster_agent.backends.simulated.episodes import Episode, Episodes
from cluster_agent.recording.load_history import MOST_STEPS, UNKNOWN, LoadCurve
from policy_net.domain import PolicyContext
from policy_net.errors import PolicyNetError
from policy_net.laboratory.simulation.load import Load, load_of, nearly_done, recorded_load
from policy_net.laboratory.simulation.replay import replay
from policy_net.policy import build_policy

USUAL = "fifo-easy"
RECORDED = "recorded"
"""No scheduler's name: what the recording says."""
_SHORTEST_SECONDS = 1.0
"""Of a run whose load can be seen."""
_EPISODES_KEPT = 2
"""Whose load is kept: the one that is told, and the one that runs."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Known:
    """One episode under one scheduler: completion times by job, and the load."""

    jct_seconds: Mapping[str, float]
    load: LoadCurve | None


class Baselines:
    """Other schedulers on each episode, as far as they have been replayed; safe to ask from any thread.

    Attributes:
        fallback: the name of the agent's fallback.
    """

    def __init__(self, episodes: Episodes, fallback: str) -> None:
        self._episodes = episodes
        self.fallback = fallback
        self._known: dict[str, dict[int, _Known]] = {RECORDED: {}, USUAL: {}, fallback: {}}
        self._reached = threading.Semaphore(1)
        self._latest = 0

    def start(self) -> None:
        """Begin to replay in the background, each episode once the run has reached it."""
        threading.Thread(target=self._work, name="baselines", daemon=True).start()

    def compute(self, index: int) -> None:
        """Replay one episode under each of them; one that cannot finish it is reported, and not known from then on."""
        episode = self._episodes.items[index]
        recorded = _recorded(episode)
        if recorded is not None:
            self._known[RECORDED][index] = recorded
        for policy in dict.fromkeys((self.fallback, USUAL)):
            try:
                self._known[policy][index] = self._replayed(episode, policy)
            except PolicyNetError as error:
                _log.warning("baseline-unknown", policy=policy, episode=index, error=str(error))
        for of_policy in self._known.values():
            old = of_policy.get(index - _EPISODES_KEPT)
            if old is not None:
                of_policy[index - _EPISODES_KEPT] = _Known(old.jct_seconds, None)

    def average_jct_seconds(self, episode: int, done: set[str]) -> dict[str, float]:
        """Scheduler to the average over all jobs of the episodes before this one and the given jobs of it.

        One of which that is not known (yet) is not there.
        """
        self._reach(episode)
        averages = {policy: self._average(self._known[policy], episode, done) for policy in self._known}
        return {policy: seconds for policy, seconds in averages.items() if seconds > 0.0}

    def load(self, episode: int) -> tuple[LoadCurve, ...]:
        """Of one episode under each scheduler, as far as it is known."""
        known = [of_policy.get(episode) for of_policy in self._known.values()]
        return tuple(entry.load for entry in known if entry is not None and entry.load is not None)

    @staticmethod
    def _average(known: Mapping[int, _Known], episode: int, done: set[str]) -> float:
        total_seconds = 0.0
        jobs = 0
        for index in range(episode + 1):
            entry = known.get(index)
            if entry is None or (index == episode and not done <= entry.jct_seconds.keys()):
                return 0.0
            times = entry.jct_seconds
            counted = list(times.values()) if index < episode else [times[job_id] for job_id in done]
            total_seconds += math.fsum(counted)  # exact, so that the order of the jobs does not matter
            jobs += len(counted)
        return total_seconds / jobs if jobs else 0.0

    def _replayed(self, episode: Episode, policy: str) -> _Known:
        result = replay(
            episode.workload,
            episode.environment,
            build_policy(policy, PolicyContext()),
            self._episodes.speeds,
            record_timeline=True,
            placement_effect=self._episodes.placement_effect,
        )
        load = load_of(episode.workload, episode.environment.gpus, result.timeline)
        times = {outcome.job_id: outcome.jct_seconds for outcome in result.outcomes if outcome.jct_seconds is not None}
        return _Known(times, _curve(policy, load))

    def _reach(self, episode: int) -> None:
        while self._latest < episode:
            self._latest += 1
            self._reached.release()

    def _work(self) -> None:
        for index in range(len(self._episodes.items)):
            self._reached.acquire()
            self.compute(index)


def _recorded(episode: Episode) -> _Known | None:
    workload = episode.workload
    load = recorded_load(workload, episode.environment.gpus)
    if load is None:
        return None
    times = {job.job_id: workload.records[job.job_id].jct_seconds for job in workload.jobs}
    return _Known({job_id: seconds for job_id, seconds in times.items() if seconds is not None}, _curve(RECORDED, load))


def _curve(policy: str, load: Load) -> LoadCurve | None:
    """The load in steps; the GPUs in use are not known where there were more than the simulated cluster has."""
    if load.ends[-1] < _SHORTEST_SECONDS:
        return None
    used, waiting = load.means(MOST_STEPS)
    if max(load.used) > load.gpus:
        used = [UNKNOWN] * len(used)
    gpus = (float(load.gpus),) * len(used)
    return LoadCurve(
        begin_seconds=0.0,
        step_seconds=load.ends[-1] / MOST_STEPS,
        gpus_used=tuple(used),
        jobs_waiting=tuple(waiting),
        gpus=gpus,
        policy=policy,
        ended=True,
        nearly_done_seconds=nearly_done(load.ends),
    )
