"""The simulated backend: a cluster that exists in the agent's process only, yet outlives it.

The truth about the jobs lives here, so it is written to disk after every decision: an agent that is killed at any
moment finds its cluster where it stood, at most one decision earlier.

A simulated cluster can be run twice. What the fallback would have done with the same jobs is the figure that a run is
read against; those replays run in a daemon thread beside the decisions, since they cost seconds and nobody waits for
them. FIFO with EASY backfill, which most clusters run, is replayed beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import structlog

from cluster_agent.backend_settings import SimulatedBackendSettings, resolved_source
from cluster_agent.backends.base import AgentParts, BackendStatus
from cluster_agent.backends.simulated.baselines import Baselines
from cluster_agent.backends.simulated.episodes import Episodes, load_episodes
from cluster_agent.backends.simulated.pace import Pacer, TwinPacer, build_pacer
from cluster_agent.errors import StateDamaged
from cluster_agent.recording.load_history import LoadCurve, LoadHistory
from cluster_agent.recording.state_files import read_json, write_json
from policy_net.domain import SUSPENDED, ClusterState, Decision, Progress, Trigger
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.load import nearly_done

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
    if settings.wait_for_twin and parts.twin_waiting is not None:
        pacer = TwinPacer(pacer, parts.twin_waiting, parts.wait)
    baselines = Baselines(episodes, parts.fallback) if settings.baseline else None
    return SimulatedBackend(episodes, parts.state_dir, pacer, baselines)


class SimulatedBackend:
    """Runs episodes one after another; a `Backend`.

    Args:
        episodes: what to run.
        state_dir: where the snapshot is kept; a snapshot found there is gone on from.
        pacer: holds the simulated clock back.
        baselines: replay the same jobs under other schedulers, for the status; None where nobody asks.
    """

    def __init__(self, episodes: Episodes, state_dir: Path, pacer: Pacer, baselines: Baselines | None = None) -> None:
        self._episodes = episodes
        self._path = state_dir / SNAPSHOT
        self._pacer = pacer
        self._baselines = baselines
        self._index = 0
        self._closed_jobs = 0
        self._closed_jct_seconds = 0.0
        self._closed_time_seconds = 0.0
        self._due_seconds = 0.0
        self._load = LoadHistory(math.inf)
        self._whole: tuple[int, LoadCurve] | None = None
        """The latest run that ended, and its load: a whole one is told rather than the beginning of the next."""
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
        return "" if self._baselines is None else self._baselines.fallback

    @property
    def job_types(self) -> Sequence[str]:
        """All types that will arrive."""
        return self._episodes.job_types

    @property
    def not_ready(self) -> str:
        """Nothing: a simulation is there at once."""
        return ""

    def start(self) -> None:
        """Begin to replay the jobs under other schedulers, if anybody asks for that."""
        if self._baselines is not None:
            self._baselines.start()

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
        state = None if self._observed is None else self._observed[0]
        progress = self._simulation.apply(decision)
        if state is not None:
            self._load.on_interval(state, progress, self._simulation.time_seconds - state.time_seconds)
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
        whole = self._load.curve(nearly_done_seconds=self._nearly_done_seconds())
        self._whole = None if whole is None else (self._index, whole)
        self._load = LoadHistory(math.inf)
        times = self._completion_seconds()
        self._closed_jobs += len(times)
        self._closed_jct_seconds += sum(times.values())
        self._closed_time_seconds += self._simulation.time_seconds
        self._index += 1
        self._simulation = self._begin(self._index)
        self._due_seconds = 0.0

    def _nearly_done_seconds(self) -> float:
        """When nearly all jobs of this episode were done, all of which are."""
        submitted = {job.job_id: job.submit_time_seconds for job in self._episodes.items[self._index].workload.jobs}
        return nearly_done([submitted[job_id] + seconds for job_id, seconds in self._completion_seconds().items()])

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
        baselines = {} if self._baselines is None else self._baselines.average_jct_seconds(self._index, set(times))
        return BackendStatus(
            time_seconds=self._closed_time_seconds + self._simulation.time_seconds,
            jobs_running=running,
            jobs_waiting=len(jobs) - running,
            jobs_done=done,
            jobs_total=self._episodes.jobs_total,
            avg_jct_seconds=total_seconds / done if done else 0.0,
            baseline_jct_seconds=baselines.get(self.baseline_policy, 0.0),
            simulated=True,
            load=self._reported_load(),
            baselines=baselines,
        )

    def _reported_load(self) -> tuple[LoadCurve, ...]:
        """The latest run that ended, else the present one so far, and what is known of it under other schedulers."""
        ended = self._simulation.finished
        curve = self._load.curve(nearly_done_seconds=self._nearly_done_seconds() if ended else 0.0)
        reported = (self._index, curve) if curve is not None and curve.ended else self._whole or (self._index, curve)
        index, curve = reported
        if curve is None:
            return ()
        return (curve, *(() if self._baselines is None else self._baselines.load(index)))

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
        if saved.get("digest") != self._episodes.digest and saved.get("digest") == self._episodes.digest_with_ps:
            raise StateDamaged(
                f"{self._path}: its recorded jobs have parameter servers, as all had that were of no stated kind; "
                "write job_kind: ps at each of backend.workloads to go on with it, or use another state_dir"
            )
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
