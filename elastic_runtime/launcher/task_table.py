"""Processes of a job's tasks: what to start and to end, by the coordinator's view and what runs, and how each ended.

The coordinator decides who is needed. The plan adds patience: a task that keeps dying is started again more and more
slowly, one that should have left by itself is first asked and then ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from elastic_runtime.launcher.gpu_seats import GpuSeats
from elastic_runtime.launcher.job_spec import ProcessSpec, Programs, is_worker
from elastic_runtime.launcher.settings import LauncherSettings
from elastic_runtime.launcher.task_process import Show, TaskProcess
from elastic_runtime.launcher.warm.starter import WarmStarter
from elastic_runtime.protocol.plan import OVER, JobPhase, View


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
    """Memory of how often tasks died and since when unneeded ones run on; times are any one clock's seconds."""

    settings: LauncherSettings
    _ended: dict[str, _Ended] = field(default_factory=dict)
    _unneeded_since: dict[str, float] = field(default_factory=dict)
    _terminated_at: dict[str, float] = field(default_factory=dict)
    _registered: set[str] = field(default_factory=set)

    def on_ended(self, task: str, now_seconds: float) -> None:
        """Take note of the end of a task's process."""
        times = self._ended[task].times + 1 if task in self._ended else 1
        pause = self.settings.restart_backoff_seconds * 2.0 ** (times - 1)
        # Between hearing of the end and publishing what follows from it the coordinator still says that it wants it.
        self._ended[task] = _Ended(times, now_seconds + min(pause, self.settings.longest_backoff_seconds))
        self._unneeded_since.pop(task, None)
        self._terminated_at.pop(task, None)

    def on_terminated(self, task: str, now_seconds: float) -> None:
        """Take note that a task was asked to end."""
        self._terminated_at.setdefault(task, now_seconds)

    def is_needless(self, task: str, view: View) -> bool:
        """Whether a task never came to be a member, and is not wanted any more."""
        known = task in self._registered or any(task in workers for workers in _workers_by_plan(view))
        return not known and (view.phase in OVER or task not in view.wanted)

    def decide(self, view: View, running: Collection[str], now_seconds: float) -> Actions:
        """Actions that follow from a view and from the tasks whose process runs."""
        over = view.phase in OVER
        desired = () if over else view.wanted
        pausing = {task for task, ended in self._ended.items() if now_seconds < ended.not_before_seconds}
        start = tuple(task for task in desired if task not in running and task not in pausing)
        members = {member.task for member in view.members}
        # Of many views in a short time only the newest is seen: who was a member in between stands in a plan.
        self._registered.update(members, *_workers_by_plan(view))
        known = members | set(desired)
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


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """How a task's process ended; a negative exit code is a signal. `requested`: the launcher had told it to end."""

    task: str
    exit_code: int
    last_words: str
    requested: bool = False


class TaskTable:
    """All running tasks; one thread, the launcher's main one.

    Args:
        warm: forks tasks that it can fork; the others, and all if there is none, start cold.
    """

    def __init__(
        self,
        programs: Programs,
        settings: LauncherSettings,
        show: Show,
        clock: Callable[[], float],
        warm: WarmStarter | None = None,
    ) -> None:
        self._programs = programs
        self._settings = settings
        self._show = show
        self._clock = clock
        self._warm = warm
        self._plan = ProcessPlan(settings)
        self._processes: dict[str, TaskProcess] = {}
        self._requested: set[str] = set()
        spec = programs.spec
        self._seats = None if spec.gpu_file is None else GpuSeats(spec.gpu_file, spec.worker_gpus)

    @property
    def running(self) -> tuple[str, ...]:
        """Tasks whose process runs."""
        return tuple(self._processes)

    @property
    def pids(self) -> set[int]:
        """Process numbers of all tasks."""
        return {process.pid for process in self._processes.values()}

    @property
    def workers(self) -> tuple[str, ...]:
        """Workers whose process runs."""
        return tuple(task for task in self._processes if is_worker(task))

    def is_needless(self, task: str, view: View) -> bool:
        """Whether a task never came to be a member, and is not wanted any more."""
        return self._plan.is_needless(task, view)

    def reap(self) -> list[TaskEnd]:
        """Tasks that have ended since the last call."""
        ended = []
        for task, process in list(self._processes.items()):
            code = process.poll()
            if code is not None:
                del self._processes[task]
                ended.append(TaskEnd(task, code, process.last_words(), task in self._requested))
                self._requested.discard(task)
                self._give_back(task)
                self._plan.on_ended(task, self._clock())
        return ended

    def follow(self, view: View, address: str) -> list[TaskEnd]:
        """Start, terminate and kill what a view asks for.

        Returns:
            the tasks that could not even be started.
        """
        actions = self._plan.decide(view, self._processes, self._clock())
        stay = {*view.wanted, *(member.task for member in view.members)}.difference(view.leaving)
        failed = self._start(actions.start, address, stay)
        for task in (*actions.terminate, *actions.kill):
            self._plan.on_terminated(task, self._clock())
            self._requested.add(task)
        for task in actions.terminate:
            self._processes[task].terminate()
        for task in actions.kill:
            self._processes[task].kill()
        return failed

    def kill_all(self) -> None:
        """End everything at once and wait for it."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(self._settings.grace_seconds, self._clock)
        self._processes.clear()

    def _start(self, tasks: Sequence[str], address: str, stay: Collection[str]) -> list[TaskEnd]:
        failed = []
        there = {*self._processes, *tasks}
        workers = sum(is_worker(task) for task in there)
        for task in tasks:
            if self._seats is not None and is_worker(task) and self._seats.is_to_wait(stay):
                continue  # a later look starts it: to fail for that would be taken for a fault of the script's
            spec = self._programs.task_process(task, address, workers, len(there) - workers)
            if self._warm is not None and self._warm.is_to_wait(spec):
                continue  # a later look starts it
            try:
                spec = self._seated(task, spec)
                self._processes[task] = TaskProcess(task, spec, self._settings.log_bytes, self._show, self._warm)
            except OSError as error:
                self._give_back(task)
                self._plan.on_ended(task, self._clock())
                failed.append(TaskEnd(task, 1, f"no process can be started: {error}"))
        return failed

    def _seated(self, task: str, spec: ProcessSpec) -> ProcessSpec:
        """A worker sees the GPUs that it was given; a parameter server, where they are given out, none."""
        if self._seats is None:
            return spec
        visible = ",".join(self._seats.take(task)) if is_worker(task) else ""
        return replace(spec, environment={**spec.environment, "CUDA_VISIBLE_DEVICES": visible})

    def _give_back(self, task: str) -> None:
        if self._seats is not None:
            self._seats.give_back(task)


class LateFailures:
    """Scripts that fail when their job is done: the model is trained, but what they had to do with it is not done.

    A worker that failed is remembered until a later view shows that its job went on without it.

    Attributes:
        first: the first of those that failed since training ended, or as it did; None if none has.
    """

    def __init__(self) -> None:
        self.first: TaskEnd | None = None
        self._view_number = 0

    def on_failure(self, end: TaskEnd, view: View) -> None:
        """A worker failed; `view` is the newest, and may be older than the job's end."""
        if self.first is None and view.phase is not JobPhase.FAILED:
            self.first, self._view_number = end, view.number

    def on_view(self, view: View) -> None:
        """A view: what failed before it was in time to be made good, if the job trains on."""
        if view.phase is not JobPhase.FINISHED and view.number > self._view_number:
            self.first = None
