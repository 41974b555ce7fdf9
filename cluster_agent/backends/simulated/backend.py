"""The simulated backend: a cluster that exists in the agent's process only, yet outlives it.

The truth about the jobs lives here, so it is written to disk after every decision: an agent that is killed at any
moment finds its cluster where it stood, at most one decision earlier.

A simulated cluster can be run twice. What the fallback would have done with the same jobs is the figure that a run is
read against; those replays run in a daemon thread beside the decisions, since they cost seconds and nobody waits for
them. FIFO with EASY backfill, which most clusters run, is replayed beside it.

The clock's pace: `free` runs on, `scaled` keeps a ratio to the wall clock, and `lockstep` waits for the trainer, so
that a run learns as much per decision on a slow machine as on a fast one. Each may wait for a rollout's twin, too.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

import policy_net.baselines  # noqa: F401  (registers the schedulers' names)
from cluster_agent.backend_settings import FreePace, LockstepPace, ScaledPace, SimulatedBackendSettings, resolved_source
from cluster_agent.backends.base import AgentParts, Backend, BackendStatus, Backlog, Wait
from cluster_agent.backends.simulated.episodes import Episode, Episodes, load_episodes
from cluster_agent.errors import StateDamaged
from cluster_agent.recording.load_history import MOST_STEPS, UNKNOWN, LoadCurve, LoadHistory
from cluster_agent.recording.state_files import read_json, write_json
from policy_net.domain import SUSPENDED, ClusterState, Decision, PolicyContext, Progress, Trigger
from policy_net.errors import PolicyNetError
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.metrics import Load, load_of, nearly_done, recorded_load
from policy_net.laboratory.simulation.replay import replay
from policy_net.policy import build_policy

_POLL_SECONDS = 0.002
"""How often lockstep looks at the backlog: well below the ~10 ms that an update takes, and no load."""
_TWIN_POLL_SECONDS = 0.02
"""How often the twin is looked at: its answers take a second and more."""
MOST_UNANSWERED = 1
"""Questions to the twin beyond which the clock stands: while it works on one, the next comes up."""


Pace = Callable[[float], bool]
"""Returns when an interval of so many simulated seconds may be over; True as soon as the agent is to stop."""


class LockstepPacer:
    """Waits while the trainer is behind, unless it gets nothing done for longer than patience lasts.

    Once patience is over the clock runs free until the trainer works something off again: an outage is waited for once.
    """

    def __init__(self, settings: LockstepPace, backlog: Backlog, wait: Wait, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._backlog = backlog
        self._wait = wait
        self._clock = clock
        self._given_up_at: int | None = None

    def pace(self, simulated_seconds: float) -> bool:  # noqa: ARG002  (the trainer's time counts, not the cluster's)
        """Wait until the trainer has caught up to within the bound."""
        done = self._backlog.worked_off
        since = self._clock()
        while self._backlog.waiting > self._settings.backlog_decisions:
            if self._wait(_POLL_SECONDS):
                return True
            if self._backlog.worked_off != done:
                done = self._backlog.worked_off
                since = self._clock()
                self._given_up_at = None
            elif self._given_up_at == done or self._clock() - since > self._settings.patience_seconds:
                self._given_up_at = done
                break
        return self._wait(0.0)


def behind_twin(pace: Pace, unanswered: Callable[[], int], wait: Wait) -> Pace:
    """A pace that waits for the twin as well, until it has few questions left; it gives up on what takes long."""

    def waiting(simulated_seconds: float) -> bool:
        while unanswered() > MOST_UNANSWERED:
            if wait(_TWIN_POLL_SECONDS):
                return True
        return pace(simulated_seconds)

    return waiting


def pace_of(
    settings: LockstepPace | ScaledPace | FreePace, backlog: Backlog | None, wait: Wait, clock: Callable[[], float]
) -> Pace:
    """The pace of a configuration; without a trainer (`backlog` None) lockstep has nothing to wait for."""
    if isinstance(settings, ScaledPace):
        speedup = settings.speedup
        return lambda simulated_seconds: wait(simulated_seconds / speedup)
    if isinstance(settings, LockstepPace) and backlog is not None:
        return LockstepPacer(settings, backlog, wait, clock).pace
    return lambda _: wait(0.0)


SNAPSHOT = "cluster.json"

_log = structlog.get_logger()


USUAL = "fifo-easy"
RECORDED = "recorded"
"""No scheduler's name: what the recording says."""
_SHORTEST_SECONDS = 1.0
"""Of a run whose load can be seen."""
_EPISODES_KEPT = 2
"""Whose load is kept: the one that is told, and the one that runs."""


@dataclass(frozen=True, slots=True)
class _Known:
    """One episode under one scheduler: completion times by job, and the load."""

    jct_seconds: Mapping[str, float]
    load: LoadCurve | None


class Baselines:
    """Other schedulers on each episode, as far as they have been replayed; safe to ask from any thread."""

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
    pace = pace_of(settings.pace, parts.backlog, parts.wait, parts.clock)
    if settings.wait_for_twin and parts.twin_waiting is not None:
        pace = behind_twin(pace, parts.twin_waiting, parts.wait)
    baselines = Baselines(episodes, parts.fallback) if settings.baseline else None
    return SimulatedBackend(episodes, parts.state_dir, pace, baselines)


class SimulatedBackend(Backend):
    """Runs episodes one after another, from the snapshot in `state_dir` on if there is one."""

    def __init__(self, episodes: Episodes, state_dir: Path, pace: Pace, baselines: Baselines | None = None) -> None:
        self._episodes = episodes
        self._path = state_dir / SNAPSHOT
        self._pace = pace
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

    def start(self) -> None:
        """Begin to replay the jobs under other schedulers, if anybody asks for that."""
        if self._baselines is not None:
            self._baselines.start()

    def observe(self) -> tuple[ClusterState, Trigger] | None:
        """See `Backend.observe`; held back by its pace."""
        if self.finished:
            return None
        if self._observed is None:
            if self._simulation.finished:
                self._next_episode()
            observed = self._simulation.observe()
            elapsed = observed[0].time_seconds - self._due_seconds
            self._due_seconds = observed[0].time_seconds
            if self._pace(max(elapsed, 0.0)):
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
        return {
            outcome.job_id: outcome.jct_seconds
            for outcome in self._simulation.jobs.outcomes()
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
