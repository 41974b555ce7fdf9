"""The simulated backend: a cluster that exists in the agent's process only, yet outlives it.

The truth about the jobs lives here, so it is written to disk after every decision: an agent that is killed at any
moment finds its cluster where it stood, at most one decision earlier.

A simulated cluster can be run twice. What the fallback would have done with the same jobs is the figure that a run is
read against; those replays run in a daemon thread beside the decisions, since they cost seconds and nobody waits for
them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from pathlib import Path

import structlog

import policy_net.baselines  # noqa: F401  (registers the schedulers' names)
from cluster_agent.backend_settings import SimulatedBackendSettings, resolved_source
from cluster_agent.backends.base import AgentParts, BackendStatus
from cluster_agent.backends.simulated.episodes import Episodes, load_episodes
from cluster_agent.backends.simulated.pace import Pacer, build_pacer
from cluster_agent.errors import StateDamaged
from cluster_agent.recording.state_files import read_json, write_json
from policy_net.domain import SUSPENDED, ClusterState, Decision, PolicyContext, Progress, Trigger
from policy_net.errors import PolicyNetError
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.replay import replay
from policy_net.policy import build_policy

SNAPSHOT = "cluster.json"

_log = structlog.get_logger()


def resolve_paths(settings: SimulatedBackendSettings, folder: Path) -> SimulatedBackendSettings:
    """The settings with the paths in them taken from the folder; see `BackendModule`."""
    workloads = tuple(
        episode.model_copy(update={"source": resolved_source(episode.source, folder)}) for episode in settings.workloads
    )
    changes: dict[str, object] = {"workloads": workloads}
    if settings.speeds is not None:
        changes["speeds"] = folder / settings.speeds
    return settings.model_copy(update=changes)


def open_backend(settings: SimulatedBackendSettings, parts: AgentParts) -> SimulatedBackend:
    """A simulated cluster, read and checked whole, and gone on from where it was left; see `BackendModule`."""
    episodes = load_episodes(settings)
    pacer = build_pacer(settings.pace, parts.backlog, parts.wait, parts.clock)
    baseline = Baseline(episodes, parts.fallback) if settings.baseline else None
    return SimulatedBackend(episodes, parts.state_dir, pacer, baseline)


class SimulatedBackend:
    """Runs episodes one after another; a `Backend`.

    Args:
        episodes: what to run.
        state_dir: where the snapshot is kept; a snapshot found there is gone on from.
        pacer: holds the simulated clock back.
        baseline: replays the same jobs under the fallback, for the status; None where nobody asks.
    """

    def __init__(self, episodes: Episodes, state_dir: Path, pacer: Pacer, baseline: Baseline | None = None) -> None:
        self._episodes = episodes
        self._path = state_dir / SNAPSHOT
        self._pacer = pacer
        self._baseline = baseline
        self._index = 0
        self._closed_jobs = 0
        self._closed_jct_seconds = 0.0
        self._closed_time_seconds = 0.0
        self._due_seconds = 0.0
        self._observed: tuple[ClusterState, Trigger] | None = None
        self._simulation = self._begin(0)
        self._resume()
        self._status = self._current_status()

    @property
    def finished(self) -> bool:
        """Whether the jobs of all episodes are done."""
        return self._index == len(self._episodes.items) - 1 and self._simulation.finished

    @property
    def time_seconds(self) -> float:
        """The clock of the present episode."""
        return self._simulation.time_seconds

    @property
    def baseline_policy(self) -> str:
        """The fallback, where its average is computed."""
        return "" if self._baseline is None else self._baseline.policy

    @property
    def job_types(self) -> Sequence[str]:
        """All types that will arrive."""
        return self._episodes.job_types

    @property
    def not_ready(self) -> str:
        """Nothing: a simulation is there at once."""
        return ""

    def start(self) -> None:
        """Begin to replay the jobs under the fallback, if anybody asks for that."""
        if self._baseline is not None:
            self._baseline.start()

    def observe(self) -> tuple[ClusterState, Trigger] | None:
        """See `Backend.observe`; held back by the pacer."""
        if self.finished:
            return None
        if self._observed is None:
            if self._simulation.finished:
                self._next_episode()
            observed = self._simulation.observe()
            elapsed = observed[0].time_seconds - self._due_seconds
            self._due_seconds = observed[0].time_seconds
            if self._pacer.hold(max(elapsed, 0.0)):
                return None
            self._observed = observed
            self._status = self._current_status()
        return self._observed

    def apply(self, decision: Decision) -> list[Progress]:
        """See `Backend.apply`; runs the simulation on to the next decision point and saves it."""
        progress = self._simulation.apply(decision)
        self._observed = None
        self._save()
        self._status = self._current_status()
        return progress

    def status(self) -> BackendStatus:
        """How the jobs stood at the latest decision point."""
        return self._status

    def close(self) -> None:
        """Nothing is held: the snapshot is on disk."""

    def _begin(self, index: int) -> Simulation:
        episode = self._episodes.items[index]
        return Simulation(episode.workload, episode.environment, self._episodes.speeds, self._episodes.placement_effect)

    def _next_episode(self) -> None:
        times = self._completion_seconds()
        self._closed_jobs += len(times)
        self._closed_jct_seconds += sum(times.values())
        self._closed_time_seconds += self._simulation.time_seconds
        self._index += 1
        self._simulation = self._begin(self._index)
        self._due_seconds = 0.0

    def _completion_seconds(self) -> dict[str, float]:
        """Completion times of the done jobs of this episode."""
        return {
            outcome.job_id: outcome.jct_seconds
            for outcome in self._simulation.outcomes()
            if outcome.jct_seconds is not None
        }

    def _current_status(self) -> BackendStatus:
        times = self._completion_seconds()
        done = self._closed_jobs + len(times)
        total_seconds = self._closed_jct_seconds + sum(times.values())
        # Not what was observed last: between two decisions, when heartbeats look, the jobs hold what was decided.
        jobs = () if self._simulation.finished else self._simulation.observe()[0].jobs
        running = sum(job.current != SUSPENDED for job in jobs)
        return BackendStatus(
            time_seconds=self._closed_time_seconds + self._simulation.time_seconds,
            jobs_running=running,
            jobs_waiting=len(jobs) - running,
            jobs_done=done,
            jobs_total=self._episodes.jobs_total,
            avg_jct_seconds=total_seconds / done if done else 0.0,
            baseline_jct_seconds=0.0
            if self._baseline is None
            else self._baseline.average_jct_seconds(self._index, set(times)),
            simulated=True,
        )

    def _save(self) -> None:
        content = {
            "digest": self._episodes.digest,
            "episode": self._index,
            "closed_jobs": self._closed_jobs,
            "closed_jct_seconds": self._closed_jct_seconds,
            "closed_time_seconds": self._closed_time_seconds,
            "due_seconds": self._due_seconds,
            "simulation": self._simulation.snapshot(),
        }
        try:
            write_json(self._path, content)
        except OSError as error:
            # A full disk costs the way back after a kill, not the cluster: the next decision tries again.
            _log.error("cluster-not-saved", file=str(self._path), error=str(error))

    def _resume(self) -> None:
        saved = read_json(self._path)
        if saved is None:
            return
        if saved.get("digest") != self._episodes.digest:
            raise StateDamaged(
                f"{self._path}: was written for other workloads, episodes or machines; use another state_dir, or "
                "remove the file"
            )
        try:
            self._index = saved["episode"]
            self._closed_jobs = saved["closed_jobs"]
            self._closed_jct_seconds = saved["closed_jct_seconds"]
            self._closed_time_seconds = saved["closed_time_seconds"]
            self._due_seconds = saved["due_seconds"]
            self._simulation = self._begin(self._index)
            self._simulation.restore(saved["simulation"])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise StateDamaged(f"{self._path}: damaged ({error!r}); remove it to start afresh") from error


class Baseline:
    """Completion times under the fallback, per episode, as far as they have been computed.

    Attributes:
        policy: the fallback's name.
    """

    def __init__(self, episodes: Episodes, fallback: str) -> None:
        self._episodes = episodes
        self.policy = fallback
        self._seconds: dict[int, dict[str, float]] = {}
        self._reached = threading.Semaphore(1)
        self._latest = 0

    def start(self) -> None:
        """Begin to replay in the background, each episode once the run has reached it."""
        threading.Thread(target=self._work, name="baseline", daemon=True).start()

    def compute(self, index: int) -> None:
        """Replay one episode.

        Raises:
            PolicyNetError: the fallback cannot finish it.
        """
        episode = self._episodes.items[index]
        policy = build_policy(self.policy, PolicyContext())
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
                self.compute(index)
            except PolicyNetError as error:
                _log.warning("baseline-unknown", episode=index, error=str(error))
                return
