"""A cluster that exists in the agent's process only, yet outlives it.

The truth about the jobs lives here, so it is written to disk after every decision: an agent that is killed at any
moment finds its cluster where it stood, at most one decision earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from cluster_agent.backends.base import BackendStatus
from cluster_agent.backends.episodes import Episodes
from cluster_agent.errors import StateDamaged
from cluster_agent.pace import Pacer
from cluster_agent.state_files import read_json, write_json
from policy_net.domain import SUSPENDED, ClusterState, Decision, Progress, Trigger
from policy_net.laboratory.simulation.engine import Simulation

SNAPSHOT = "cluster.json"

_log = structlog.get_logger()

BaselineJct = Callable[[int, set[str]], float]
"""Average JCT under the fallback: of all episodes before this one, and of these jobs of it; 0 if not known."""


class SimulatedBackend:
    """Runs episodes one after another; a `Backend`.

    Args:
        episodes: what to live through.
        state_dir: where the snapshot is kept; a snapshot found there is gone on from.
        pacer: holds the simulated clock back.
        baseline: the fallback's figure, for the status.
    """

    def __init__(self, episodes: Episodes, state_dir: Path, pacer: Pacer, baseline: BaselineJct) -> None:
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
        self._status = self._work_out_status()

    @property
    def finished(self) -> bool:
        """Whether the jobs of all episodes are done."""
        return self._index == len(self._episodes.items) - 1 and self._simulation.finished

    @property
    def time_seconds(self) -> float:
        """The clock of the present episode."""
        return self._simulation.time_seconds

    @property
    def job_types(self) -> Sequence[str]:
        """All types that will arrive."""
        return self._episodes.job_types

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
            self._status = self._work_out_status()
        return self._observed

    def apply(self, decision: Decision) -> list[Progress]:
        """See `Backend.apply`; runs the simulation on to the next decision point and saves it."""
        progress = self._simulation.apply(decision)
        self._observed = None
        self._save()
        self._status = self._work_out_status()
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

    def _work_out_status(self) -> BackendStatus:
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
            baseline_jct_seconds=self._baseline(self._index, set(times)),
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
