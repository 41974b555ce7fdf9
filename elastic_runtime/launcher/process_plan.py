"""Process plan: what to start and to end, from the coordinator's newest view and what runs here; no process is touched.

The coordinator decides who is needed. The plan adds patience: a task that keeps dying is started again more and more
slowly, one that should have left by itself is first asked and then ended.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from elastic_runtime.launcher.job_spec import is_worker
from elastic_runtime.launcher.settings import LauncherSettings
from elastic_runtime.protocol.plan import JobPhase, View

OVER = frozenset({JobPhase.SUSPENDED, JobPhase.FINISHED, JobPhase.FAILED})
"""Phases in which a job needs none of its tasks."""


def _workers_by_plan(view: View) -> list[tuple[str, ...]]:
    lists = [view.start_plan.workers]
    return lists + [stage.workers for change in view.changes for stage in change.stages if stage.workers is not None]


def staying(view: View, workers: Collection[str]) -> set[str]:
    """Those of some workers that the job does not let go: a change drops them before they are told to leave."""
    lists = _workers_by_plan(view)
    dropped = {worker for names in lists for worker in names}.difference(lists[-1])
    return {*workers}.difference(dropped, view.leaving)


@dataclass(frozen=True, slots=True)
class Actions:
    """What to do now; every task in one list at most."""

    start: tuple[str, ...] = ()
    terminate: tuple[str, ...] = ()
    kill: tuple[str, ...] = ()


@dataclass(slots=True)
class _Ended:
    times: int
    not_before_seconds: float


@dataclass(slots=True)
class ProcessPlan:
    """Remembers since when what lingers and how often what died; times are any one clock's seconds."""

    settings: LauncherSettings
    _ended: dict[str, _Ended] = field(default_factory=dict)
    _unneeded_since: dict[str, float] = field(default_factory=dict)
    _terminated_at: dict[str, float] = field(default_factory=dict)
    _registered: set[str] = field(default_factory=set)

    def on_ended(self, task: str, now_seconds: float) -> None:
        """A task's process has ended, in whatever way."""
        times = self._ended[task].times + 1 if task in self._ended else 1
        pause = self.settings.restart_backoff_seconds * 2.0 ** (times - 1)
        # Between hearing of the end and publishing what follows from it the coordinator still says that it wants it.
        self._ended[task] = _Ended(times, now_seconds + min(pause, self.settings.longest_backoff_seconds))
        self._unneeded_since.pop(task, None)
        self._terminated_at.pop(task, None)

    def on_terminated(self, task: str, now_seconds: float) -> None:
        """A task was asked to end, for whatever reason."""
        self._terminated_at.setdefault(task, now_seconds)

    def is_needless(self, task: str, view: View) -> bool:
        """Whether a task never came to be a member, and is not wanted any more."""
        known = task in self._registered or any(task in workers for workers in _workers_by_plan(view))
        return not known and (view.phase in OVER or task not in view.wanted)

    def decide(self, view: View, running: Collection[str], now_seconds: float) -> Actions:
        """What to do about one view.

        Args:
            running: tasks whose process runs.
        """
        over = view.phase in OVER
        wanted = () if over else view.wanted
        start = tuple(task for task in wanted if task not in running and self._may_start(task, now_seconds))
        members = {member.task for member in view.members}
        # Of many views in a short time only the newest is seen: who was a member in between stands in a plan.
        self._registered.update(members, *_workers_by_plan(view))
        known = members | set(wanted)
        terminate, kill = [], []
        for task in sorted(running):
            if task in self._terminated_at:
                if now_seconds >= self._terminated_at[task] + self.settings.grace_seconds:
                    kill.append(task)
                continue
            if view.phase is JobPhase.FINISHED and task in self._registered and is_worker(task):
                continue  # what its script does with the model takes as long as it takes
            leaving = over or task in view.leaving
            if not leaving and task in known:
                self._unneeded_since.pop(task, None)
                continue
            since = self._unneeded_since.setdefault(task, now_seconds)
            patience = self.settings.leave_seconds if leaving else self.settings.unlisted_seconds
            if over and task not in self._registered:
                patience = 0.0  # it still starts, and its coordinator may be gone by the time that it could ask
            if now_seconds >= since + patience:
                terminate.append(task)
        return Actions(start, tuple(terminate), tuple(kill))

    def _may_start(self, task: str, now_seconds: float) -> bool:
        return task not in self._ended or now_seconds >= self._ended[task].not_before_seconds
