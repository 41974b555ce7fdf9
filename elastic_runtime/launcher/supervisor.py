"""Supervisor of one job until it is over: its coordinator, its tasks, and the user's request to stop it.

The coordinator decides who is needed; this starts and ends processes accordingly and reports their ends. It holds no
state that matters: whoever opens the job's folder next goes on from the coordinator's journal.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import time
import uuid
from collections.abc import Callable

from elastic_runtime.control.client import ControlClient
from elastic_runtime.control.credentials import ClientCredentials
from elastic_runtime.control.messages import Size
from elastic_runtime.errors import BadInput, CoordinatorUnreachable, ElasticError
from elastic_runtime.launcher.coordinator_connection import CoordinatorReporter, ViewFollower
from elastic_runtime.launcher.coordinator_keeper import CoordinatorKeeper, JobFailed
from elastic_runtime.launcher.display import Display
from elastic_runtime.launcher.job_folder import FolderPlace, resume_command
from elastic_runtime.launcher.job_spec import Programs, is_worker
from elastic_runtime.launcher.job_status import write_state
from elastic_runtime.launcher.settings import LauncherSettings, launcher_clock
from elastic_runtime.launcher.task_table import LateFailures, TaskEnd, TaskTable, staying
from elastic_runtime.launcher.warm.server_process import drop_inherited
from elastic_runtime.launcher.warm.starter import WarmStarter
from elastic_runtime.protocol.plan import ENDED, OVER, JobPhase, TaskRole, View
from foundation.errors import BAD_INPUT
from foundation.program_life import SignalHandlers
from foundation.text import describe_end

FirstRequest = Callable[[ControlClient], object]
"""A request to send as soon as the coordinator listens; may be repeated."""
STATE_SECONDS = 10.0
"""Between two writes of `state.json`: often enough for somebody who asks what a lost job had reached."""
_ONE_WISH_SECONDS = 1.0
"""Within which a signal that comes again says nothing new."""


class LauncherStopSignals(SignalHandlers):
    """Signals of a launcher: those that end it, and the end of a child.

    The first one that ends it asks for a checkpoint, the second for an end at once.

    SIGHUP, of a terminal or a connection that was closed, ends it too, unless it is ignored (`nohup`).
    The same signal twice in a moment is one wish, as `timeout` ends a process and then its group with it. Ctrl-C is
    typed, and counts each time.

    Args:
        news: gets something at each signal. A `SimpleQueue` may be filled from a handler, whatever the thread was at.
    """

    def __init__(self, news: queue.SimpleQueue[None], clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD), self._on_signal_number)
        self._news = news
        self._clock = clock
        self._heard_seconds: dict[int, float] = {}
        self.count = 0

    def _on_signal_number(self, number: int) -> None:
        now, before = self._clock(), self._heard_seconds.get(number)
        repeated = number != signal.SIGINT and before is not None and now - before < _ONE_WISH_SECONDS
        if number != signal.SIGCHLD and not repeated:
            self._heard_seconds[number] = now
            self.count += 1
        self._news.put(None)


class Supervisor:
    """One job's launcher; everything but its small helper threads runs in the caller's, the main one.

    Args:
        clock: seconds in which this process ran; looked at in each turn. None: `launcher_clock`.
    """

    def __init__(
        self,
        programs: Programs,
        credentials: ClientCredentials,
        display: Display,
        settings: LauncherSettings,
        clock: Callable[[], float] | None = None,
    ) -> None:
        clock = clock or launcher_clock()
        self._name = programs.folder.name
        self._programs = programs
        self._credentials = credentials
        self._display = display
        self._settings = settings
        self._clock = clock
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._warm = self._starter() if settings.warm and not programs.spec.cold else None
        drop_inherited()  # it was taken, or is not wanted
        self._tasks = TaskTable(programs, settings, display.show, clock, self._warm)
        self._keeper = CoordinatorKeeper(programs, settings, display.show, display.report, clock, self._warm)
        self._reporter = CoordinatorReporter(lambda: self._news.put(None))
        self._state_due_seconds = 0.0
        self._place = FolderPlace(programs.folder.path)
        self._follower: ViewFollower | None = None
        self._client: ControlClient | None = None
        self._phase: JobPhase | None = None
        self._stop_deadline: float | None = None
        self._at_once = False
        self._known_ends: set[tuple[str, int]] = set()
        self._notice = ""
        self._stop_refused: ElasticError | None = None
        self._late = LateFailures()
        self._reported_a_failure = False
        self._ended_early: dict[str, int] = {}

    def run(self, first_request: FirstRequest | None = None) -> JobPhase:
        """Look after the job until it is finished, or suspended because of a signal.

        Raises:
            BadInput: the coordinator cannot use what it was given, or something else stands in the folder's place.
            JobFailed: the job failed, or had to be stopped without a checkpoint.
        """
        with LauncherStopSignals(self._news, self._clock) as signals:
            try:
                while not self._is_over():
                    self._poll(first_request)
                    self._handle_signals(signals)
                    self._sleep()
                self._last_poll()
            finally:
                self._end_everything()
        assert self._phase is not None  # noqa: S101  (else it would not be over)
        if self._phase is JobPhase.FAILED:
            failure = self._view.failure if self._view else ""
            raise JobFailed(
                f"{self._name} failed: {failure or 'no reason was given'}; see {self._programs.folder.log_folder}"
            )
        if self._phase is JobPhase.FINISHED and self._late.first is not None:
            ends_at = self._view.ends_at if self._view else None
            trained = "is trained" if ends_at is None else f"was ended by its script after {ends_at} steps"
            raise JobFailed(
                f"{self._name} {trained}, but {self._late.first.task} {_how(self._late.first)} after that; its "
                f"checkpoints are in {self._programs.checkpoints}, its output is in {self._programs.folder.log_folder}"
            )
        return self._phase

    @property
    def _view(self) -> View | None:
        return None if self._follower is None else self._follower.view

    @property
    def _stopping(self) -> bool:
        return self._stop_deadline is not None

    def _is_over(self) -> bool:
        if self._phase not in OVER or self._tasks.running or (self._phase is JobPhase.SUSPENDED and not self._stopping):
            return False
        # A coordinator whose job has ended waits for a while, and ends too.
        return self._reporter.empty or not self._keeper.running

    def _poll(self, first_request: FirstRequest | None) -> None:
        self._check_place()
        self._keeper.poll(needed=self._phase not in ENDED)
        if self._warm is not None:
            self._warm.poll(self._tasks.pids | self._keeper.pids, needed=self._phase not in OVER)
        if self._client is None and self._keeper.address is not None:
            self._connect(self._keeper.address, first_request)
        for end in self._tasks.reap():
            self._on_task_end(end)
        if self._follower is not None and self._follower.failure is not None:
            raise self._follower.failure
        view = self._view
        if view is None:
            return
        if view.phase is not self._phase:
            # What a job that goes on again was when it was left is no news; it is about to change.
            old = self._phase is None and first_request is not None and view.phase is not JobPhase.FAILED
            self._phase = view.phase
            if not old:
                self._announce(view)
        if view.notice and view.notice != self._notice:
            self._notice = view.notice
            self._display.report(f"{self._name}: {view.notice}")
        self._late.on_view(view)
        self._report_early_ends(view)
        if not self._tasks.workers:  # one that is forked may write before all are
            coming = [task for task in view.wanted if is_worker(task)]
            self._display.on_workers(coming, staying(view, coming))
        for end in self._tasks.follow(view, self._keeper.address or ""):
            self._on_task_end(end)
        workers = [task for task in self._tasks.workers if not self._tasks.is_needless(task, view)]
        self._display.on_workers(workers, staying(view, workers))
        self._report_lost_members(view)
        if self._client is not None and self._reporter.empty and self._clock() >= self._state_due_seconds:
            self._state_due_seconds = self._clock() + STATE_SECONDS
            self._note_state(self._client)

    def _check_place(self) -> None:
        """See that the folder is the job's; a coordinator that ended in good order would clear up in another's."""
        try:
            self._place.check()
        except BadInput:
            self._at_once = True
            raise

    def _starter(self) -> WarmStarter:
        return WarmStarter(
            self._programs.fork_server_process(),
            self._settings,
            lambda line: self._display.report(f"{self._name}: {line}"),
            lambda: self._news.put(None),
            self._clock,
        )

    def _connect(self, address: str, first_request: FirstRequest | None) -> None:
        client = self._client = ControlClient(address, self._name, self._credentials)
        self._follower = ViewFollower(address, self._name, self._credentials, lambda: self._news.put(None))
        if first_request is not None:
            self._reporter.post(lambda: first_request(client), lambda error: self._display.report(str(error)))

    def _on_task_end(self, end: TaskEnd) -> None:
        view = self._view
        member = view.member(end.task) if view is not None else None
        if member is not None:
            self._known_ends.add((member.task, member.incarnation))
        self._report(end)
        if view is not None:
            if end.exit_code != 0 and is_worker(end.task) and not self._tasks.is_needless(end.task, view):
                self._late.on_failure(end, view)
            # That the job failed is said once; who came too late, or was not wanted any more, has nothing to say.
            failed = view.phase is JobPhase.FAILED
            echo = (failed and not is_worker(end.task)) or (not failed and self._tasks.is_needless(end.task, view))
            # Of bad input a job fails at once, and of a hundred workers each would say the same.
            echo = echo or (self._reported_a_failure and is_worker(end.task) and (failed or end.exit_code == BAD_INPUT))
        else:
            echo = False
        if end.exit_code != 0 and not end.requested and not echo:
            log = self._programs.folder.log_file(end.task)
            self._reported_a_failure = self._reported_a_failure or is_worker(end.task)
            # What stands right above is not said again.
            how = describe_end(end.exit_code) if self._display.shows(end.task) else _how(end)
            self._display.report(f"{end.task} {how} (see {log})")
        elif end.exit_code == 0 and view is not None and is_worker(end.task) and not _may_end(view, end.task):
            self._ended_early[end.task] = view.number

    def _report_early_ends(self, view: View) -> None:
        """A later view shows that the job goes on: only then a worker that ended well has ended too early."""
        for task, number in list(self._ended_early.items()):
            if view.number > number:
                del self._ended_early[task]
                if view.phase not in OVER and view.phase is not JobPhase.SUSPENDING and view.ends_at is None:
                    log = self._programs.folder.log_file(task)
                    self._display.report(f"{task} ended before the job did (see {log})")

    def _report_lost_members(self, view: View) -> None:
        """Members whose process does not run here belong to a launcher that died, and died with it."""
        for member in view.members:
            if member.task not in self._tasks.running and (member.task, member.incarnation) not in self._known_ends:
                self._known_ends.add((member.task, member.incarnation))
                self._report(TaskEnd(member.task, -signal.SIGKILL, "its launcher died"))

    def _report(self, end: TaskEnd) -> None:
        client = self._client
        if client is not None:
            self._reporter.post(
                lambda: client.task_ended(end.task, end.exit_code, end.last_words),
                lambda error: self._display.report(f"the end of {end.task} could not be reported: {error}"),
            )

    def _handle_signals(self, signals: LauncherStopSignals) -> None:
        if signals.count == 0 or self._phase is JobPhase.FAILED:
            return
        if self._phase is JobPhase.FINISHED:
            # A signal that came before the end had asked for no more than a checkpoint.
            if not self._tasks.workers or signals.count == self._stopping:
                return
            raise JobFailed(
                f"{self._name} is trained, but was stopped before its script had ended; its checkpoints are in "
                f"{self._programs.checkpoints}"
            )
        if signals.count > 1:
            self._at_once = True
            raise JobFailed(f"{self._name} was stopped at once; what was trained since its last checkpoint is lost")
        if self._stop_deadline is None:
            self._begin_to_stop()
        elif self._stop_refused is not None:
            raise JobFailed(f"{self._name} was stopped without a checkpoint: {self._stop_refused}")
        elif self._clock() >= self._stop_deadline:
            raise JobFailed(
                f"{self._name} was stopped without a checkpoint, as none was written within "
                f"{self._settings.suspend_seconds:g} s"
            )

    def _begin_to_stop(self) -> None:
        client = self._client
        if client is None or self._phase in (None, JobPhase.STARTING):
            raise JobFailed(f"{self._name} was stopped while it was starting; nothing was trained")
        self._stop_deadline = self._clock() + self._settings.suspend_seconds
        if self._phase is JobPhase.SUSPENDED:
            return
        self._display.report(f"{self._name} is being stopped after a checkpoint; interrupt again to stop it at once")
        request_id = uuid.uuid4().hex
        self._reporter.post(lambda: client.suspend(request_id), self._on_stop_refused)

    def _on_stop_refused(self, error: ElasticError) -> None:
        self._stop_refused = error
        self._news.put(None)

    def _sleep(self) -> None:
        try:
            self._news.get(timeout=self._settings.tick_seconds)
            while True:  # several news are one look
                self._news.get_nowait()
        except queue.Empty:
            pass

    def _announce(self, view: View) -> None:
        folder = self._programs.folder
        if view.phase is JobPhase.RUNNING:
            self._display.report(f"{self._name} is running with {_size(view)} (logs: {folder.log_folder})")
        elif view.phase is JobPhase.RECOVERING:
            self._display.report(f"{self._name} lost tasks that it needs, and goes back to its last checkpoint")
        elif view.phase is JobPhase.SUSPENDED and not self._stopping:
            command = resume_command(folder, self._programs.environment)
            self._display.report(f"{self._name} is suspended; `{command}` goes on with it")
        self._state_due_seconds = 0.0

    def _note_state(self, client: ControlClient) -> None:
        folder = self._programs.folder
        self._reporter.post(
            lambda: write_state(folder, client.status()), lambda error: self._display.report(str(error))
        )

    def _last_poll(self) -> None:
        """The coordinator's last word, before it ends; it may have ended by itself, and said it before."""
        if self._client is not None and self._keeper.running:
            with contextlib.suppress(CoordinatorUnreachable):
                write_state(self._programs.folder, self._client.status())

    def _end_everything(self) -> None:
        self._reporter.stop()
        if self._client is not None:
            self._client.close()
        if self._follower is not None:
            self._follower.close()
        self._reporter.close()
        # Tasks first: without a coordinator they would only wait for it.
        self._tasks.kill_all()
        if self._warm is not None:
            self._warm.rest()
        if self._at_once:
            self._keeper.kill()
        self._keeper.terminate()
        if not self._keeper.wait(self._settings.grace_seconds):
            self._keeper.kill()
            self._keeper.wait(self._settings.grace_seconds)
        self._keeper.close()


def _may_end(view: View, task: str) -> bool:
    ending = view.phase in OVER or view.phase is JobPhase.SUSPENDING or task in view.leaving
    return ending or (view.member(task) is None and task not in view.wanted)


def _how(end: TaskEnd) -> str:
    """Manner of a task's end, in words; a killed task has no last words about it."""
    reason = f": {end.last_words}" if end.last_words and end.exit_code > 0 else ""
    return f"{describe_end(end.exit_code)}{reason}"


def _size(view: View) -> str:
    staying = [member for member in view.members if member.task not in view.leaving]
    servers = sum(member.role is TaskRole.SERVER for member in staying)
    return str(Size(servers, len(staying) - servers))
