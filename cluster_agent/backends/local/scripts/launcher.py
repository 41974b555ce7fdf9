"""Launcher of a job without parameter servers: looks after its workers to its end, whatever becomes of the agent.

A job that can be resized is so while it trains: who is to join loads beside the others, and all form another group
after a step. Where that cannot be, workers stop after a common step with a checkpoint, and others go on from there. A
script of a fixed size runs once; told to suspend it, the launcher ends it, and it will start over. A launcher that is
itself told to end leaves a job that goes on later, as one whose machine is shut down.

What SIGTERM ended from outside, with 128 + 15 too, has not failed. A script that fails is started again as often as it
may without getting on, and as often as it likes with steps in between, more and more slowly. Workers get the variables
that torchrun sets, but for the one worker of a script of a fixed size, which is a plain process.

Usage: python -m cluster_agent.backends.local.scripts.launcher FOLDER
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import structlog

from cluster_agent.backends.local.scripts.script_folder import (
    ScriptChange,
    ScriptChanges,
    ScriptFolder,
    ScriptRecord,
    ScriptState,
    Target,
)
from elastic_runtime.checkpoint.rank_files import (
    CHECKPOINT_SECONDS_VARIABLE,
    FOLDER_VARIABLE,
    MEETING_VARIABLE,
    Meeting,
    RankFiles,
    RankProgress,
)
from elastic_runtime.errors import BadInput
from elastic_runtime.launcher.gpu_seats import read_gpus, write_used
from elastic_runtime.launcher.job_folder import FolderPlace, JobLock
from elastic_runtime.launcher.job_spec import ProcessSpec
from elastic_runtime.launcher.settings import LauncherSettings, launcher_clock
from elastic_runtime.launcher.supervisor import LauncherStopSignals
from elastic_runtime.launcher.task_process import Stream, TaskProcess
from elastic_runtime.launcher.warm.server_process import drop_inherited
from elastic_runtime.launcher.warm.starter import WarmStarter
from elastic_runtime.protocol.plan import OVER, JobPhase
from elastic_runtime.telemetry import configure_logging
from foundation.backoff import Failures
from foundation.errors import BAD_INPUT, DISK_FULL
from foundation.text import describe_end

_HOST = "127.0.0.1"
_RESTARTS_VARIABLE = "RESTART_COUNT"
"""As of sbatch, without its SLURM_: 0 at the first start."""
_BAD_INPUT = 2


class GroupChange(Enum):
    """How far a group's change of size without an end is."""

    NONE = "none"
    WAITING = "waiting"
    CALLED = "called"
    DONE = "done"
    FAILED = "failed"


@dataclass(slots=True)
class _NextGroup:
    """A group that is to be formed, and who joins."""

    meeting: Meeting
    joining: dict[str, TaskProcess] = field(default_factory=dict)
    called_at: float | None = None


class RankGroup:
    """One run; each worker gets as many of the job's `gpus` as the record says, and is forked by `warm` where it can.

    Raises:
        OSError: a worker cannot be started; none is left.
    """

    def __init__(
        self,
        record: ScriptRecord,
        folder: Path,
        workers: int,
        gpus: tuple[str, ...],
        environment: Mapping[str, str],
        clock: Callable[[], float],
        warm: WarmStarter | None = None,
    ) -> None:
        self.workers = workers
        self._clock = clock
        self._grace_seconds = record.grace_seconds
        self._kill_at: float | None = None
        self._codes: dict[str, int] = {}
        self._killed = False
        self._port = _reserved_port() if record.elastic or workers > 1 else None
        self._processes: dict[str, TaskProcess] = {}
        self._record, self._folder, self._environment, self._warm = record, folder, environment, warm
        self._number = 1
        self._next: _NextGroup | None = None
        self._leaving: list[tuple[TaskProcess, float]] = []
        try:
            self._start(self._processes, range(workers), gpus)
        except OSError:
            self.kill()
            self.close()
            raise

    def _start(self, processes: dict[str, TaskProcess], ranks: range, gpus: tuple[str, ...]) -> None:
        for rank in ranks:
            name = f"worker-{rank}"
            variables = self._variables(self._record, self._folder, rank, gpus)
            spec = ProcessSpec(
                self._record.command,
                {**self._environment, **variables},
                self._record.workdir,
                self._folder / "logs" / f"{name}.log",
            )
            processes[name] = TaskProcess(name, spec, LauncherSettings().log_bytes, _ignore_line, self._warm)

    def begin_change(self, workers: int, gpus: tuple[str, ...]) -> None:
        """Start who is to join, while the others train.

        Raises:
            OSError: one cannot be started; none of them is left.
        """
        self._number += 1
        self._next = _NextGroup(Meeting(self._number, workers))
        try:
            self._start(self._next.joining, range(self.workers, workers), gpus)
        except OSError:
            self.give_up_change()
            raise

    def go_on_change(self, files: RankFiles, progress: RankProgress) -> GroupChange:
        """See how far a change is; once all are there who are to join, the others are called."""
        after = self._next
        if after is None:
            return GroupChange.NONE
        number, workers = after.meeting.number, after.meeting.workers
        if progress.processes != workers or progress.pid != self.first:
            if any(process.poll() is not None for process in after.joining.values()):
                return GroupChange.FAILED
            if after.called_at is not None:
                late = self._clock() - after.called_at >= self._record.stop_seconds
                return GroupChange.FAILED if late else GroupChange.CALLED
            if all(files.is_ready(number, rank) for rank in range(self.workers, workers)):
                try:
                    files.call(after.meeting)
                except OSError:  # a full disk; a stop needs no room
                    return GroupChange.FAILED
                after.called_at = self._clock()
            return GroupChange.WAITING
        for name in [f"worker-{rank}" for rank in range(workers, self.workers)]:
            self._leaving.append((self._processes.pop(name), self._clock() + self._grace_seconds))
            self._codes.pop(name, None)
        self._processes |= after.joining
        self.workers, self._next = workers, None
        return GroupChange.DONE

    def give_up_change(self) -> bool:
        """End who was to join; whether the others had been called."""
        after, self._next = self._next, None
        if after is not None:
            for process in after.joining.values():
                process.kill()
                process.wait(self._grace_seconds, self._clock)
        return after is not None and after.called_at is not None

    @property
    def running(self) -> bool:
        """Whether any worker runs; looks."""
        for name, process in self._processes.items():
            code = process.poll()
            if code is not None and name not in self._codes:
                self._codes[name] = code
        if self._kill_at is not None and self._clock() >= self._kill_at:
            self.kill()
        self._leaving = [(process, until) for process, until in self._leaving if process.poll() is None]
        for process, until in self._leaving:
            if self._clock() >= until:
                process.kill()
        return len(self._codes) < len(self._processes)

    @property
    def pids(self) -> set[int]:
        """Process numbers of all."""
        joining = {} if self._next is None else self._next.joining
        leaving = (process for process, _ in self._leaving)
        return {process.pid for process in (*self._processes.values(), *joining.values(), *leaving)}

    @property
    def first(self) -> int:
        """Process number of the first worker."""
        return self._processes["worker-0"].pid

    @property
    def failure(self) -> str:
        """How the first worker that failed ended, in a line; empty if none has."""
        for name, code in self._codes.items():
            if code != 0:
                words = self._processes[name].last_words() if code > 0 else ""
                if code == -signal.SIGKILL and not self._killed:
                    words = "not by us; the kernel does so where memory runs out"
                return f"{name} {describe_end(code)}" + (f": {words}" if words else "")
        return ""

    @property
    def drained(self) -> bool:
        """Whether the first worker that did not end well was ended by SIGTERM, by its own handler or without one."""
        first = next((code for code in self._codes.values() if code), 0)
        return first in (-signal.SIGTERM, 128 + signal.SIGTERM)

    @property
    def refused(self) -> bool:
        """Whether a worker ended with 2: another start would end likewise."""
        return _BAD_INPUT in self._codes.values()

    def terminate(self) -> None:
        """Ask all to end; who has not done so in time is killed by a later look."""
        if self._kill_at is None:
            self._kill_at = self._clock() + self._grace_seconds
            for process in self._processes.values():
                process.terminate()

    def kill(self) -> None:
        """End all, and whatever they started, at once."""
        self._killed = True
        self.give_up_change()
        for process in (*self._processes.values(), *(process for process, _ in self._leaving)):
            process.kill()

    def close(self) -> None:
        """Wait for the end of all, which is under way, and give back what they had."""
        self.give_up_change()
        for process in (*self._processes.values(), *(process for process, _ in self._leaving)):
            if not process.wait(self._grace_seconds, self._clock):
                process.kill()
            process.wait(self._grace_seconds, self._clock)
            process.last_words()
        if self._port is not None:
            self._port.close()

    def _variables(self, record: ScriptRecord, folder: Path, rank: int, gpus: tuple[str, ...]) -> dict[str, str]:
        variables = {"PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": ""}
        if record.gpus:
            mine = gpus[rank * record.gpus : (rank + 1) * record.gpus]
            if len(mine) < record.gpus:
                raise OSError(f"worker-{rank} would need {record.gpus} GPUs of the job's {len(gpus)}")
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(mine)
        workers = self.workers
        if self._next is not None:
            workers = self._next.meeting.workers
            variables[MEETING_VARIABLE] = str(self._next.meeting.number)
        if self._port is not None:
            variables |= {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank if not record.gpus else 0),
                "WORLD_SIZE": str(workers),
                "LOCAL_WORLD_SIZE": str(workers),
                "MASTER_ADDR": _HOST,
                "MASTER_PORT": str(self._port.getsockname()[1]),
            }
        if record.elastic:
            variables[FOLDER_VARIABLE] = str(folder)
            variables[CHECKPOINT_SECONDS_VARIABLE] = str(record.checkpoint_seconds)
        return variables


def _reserved_port() -> socket.socket:
    """A port that nobody else is given while this socket is open; the first worker can listen there all the same."""
    port = socket.socket()
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port.bind((_HOST, 0))
    return port


def _ignore_line(task: str, stream: Stream, line: bytes) -> None:
    """The logs have it."""


_log = structlog.get_logger()
_POLL_SECONDS = 0.05
_RETRY_SECONDS = 1.0
"""Between two starts while the disk is full."""
_KEPT_CHANGES = 200
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0


class ScriptSupervisor:
    """One job's launcher; `environment` is inherited by workers, `clock` counts while this process runs."""

    def __init__(
        self,
        folder: ScriptFolder,
        record: ScriptRecord,
        environment: Mapping[str, str],
        clock: Callable[[], float],
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._record = record
        self._environment = environment
        self._clock = clock
        self._unix_clock = unix_clock
        self._files = RankFiles(folder.path, record.checkpoint_seconds, clock)
        self._place = FolderPlace(folder.path)
        before = folder.read(ScriptState)
        kept = {} if before is None else before.counted
        self.state = ScriptState(phase=JobPhase.STARTING, **kept)
        self._changes = tuple(change for change in folder.changes() if change.ended_unix_seconds)
        self.group: RankGroup | None = None
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._warm = self._starter() if record.elastic and record.interpreter is None else None
        drop_inherited()  # it was taken, or is not wanted
        self._coming: Target | None = None
        self._stop_at: float | None = None
        self._paused_at: float | None = None
        self._stalled_before = 0.0
        self._failures = Failures()
        self._again_at = -math.inf

    def run(self) -> JobPhase:
        """Until the job has ended, or is suspended.

        Raises:
            BadInput: something else was put in the place of the job's folder.
        """
        with LauncherStopSignals(self._news) as signals:
            try:
                self._files.stop_file.unlink(missing_ok=True)
                self._files.forget_meetings()
                self._begin(self._desired())
                while self.state.phase not in OVER:
                    self._place.check()
                    self.poll(signals.count)
                    self._sleep()
            except OSError as error:  # of the job's own folder: what is not there can be told to nobody
                self._note(JobPhase.FAILED, workers=0, target=0, failure=f"{error.filename}: {error.strerror}")
            finally:
                if self.group is not None:
                    self.group.kill()
                    self.group.close()
                if self._warm is not None:
                    self._warm.rest()
        return self.state.phase

    def _starter(self) -> WarmStarter:
        return WarmStarter(
            self._worker(self._folder.path / "fork-server.log"),
            LauncherSettings(),
            lambda line: _log.info("workers-start-cold", why=line),
            lambda: self._news.put(None),
            self._clock,
        )

    def _worker(self, log_file: Path) -> ProcessSpec:
        environment = {**self._environment, "PYTHONUNBUFFERED": "1"}
        return ProcessSpec(self._record.command, environment, self._record.workdir, log_file)

    def _desired(self) -> Target:
        return self._folder.read(Target) or Target(request_id="", workers=1)

    def _begin(self, target: Target) -> None:
        """Start workers; so many that nobody is left over where there is less than was asked for."""
        self._note(JobPhase.STARTING, target=target.workers, workers=0, request_id=target.request_id)
        if target.workers == 0:
            self._on_change_over(done=True)
            self._note(JobPhase.SUSPENDED)
            return
        self._coming = target
        self._start()

    def _start(self) -> None:
        """Start the workers that are to come, unless they had better wait for the process that is to fork them."""
        target = self._coming
        if target is not None and (desired := self._desired()).request_id != target.request_id:
            self._coming, self._again_at = None, -math.inf
            self._begin(desired)
            return
        if target is None or self._clock() < self._again_at:
            return
        if self._warm is not None and self._warm.is_to_wait(self._worker(Path(os.devnull))):
            return
        self._coming = None
        gpus = read_gpus(self._record.gpu_file)
        before = self.state.starts
        self._note(self.state.phase, starts=before + 1)  # beforehand, so that no count is seen twice
        again = {_RESTARTS_VARIABLE: str(before)} if self._record.requeue else {}
        try:
            self._use(gpus[: target.workers * self._record.gpus])
            self.group = RankGroup(
                self._record,
                self._folder.path,
                target.workers,
                gpus,
                {**self._environment, **again},
                self._clock,
                self._warm,
            )
        except OSError as error:
            self.state = self.state.model_copy(update={"starts": before})
            line = f"no process can be started: {error.strerror or error}"
            if error.errno not in DISK_FULL:
                self._note(JobPhase.FAILED, target=0, failure=line)
                return
            self._coming, self._again_at = target, self._clock() + _RETRY_SECONDS  # there may be room by then
            if self.state.failure != line:
                _log.warning("workers-wait-for-room", folder=str(self._folder.path), line=line)
        else:
            line = ""
        self.state = self.state.model_copy(update={"failure": line})

    def poll(self, signals: int) -> None:
        """See how its processes are, and do what is due; `signals`: how many told it to end."""
        group = self.group
        if self._warm is not None:
            self._warm.poll(set() if group is None else group.pids, needed=True)
        if group is None:
            if signals:
                self._note(JobPhase.SUSPENDED, target=0)
            else:
                self._start()
            return
        if signals:
            group.terminate()  # and kill, when its time is over
        running = group.running
        progress = self._files.progress() if self._record.elastic else RankProgress()
        if running:
            self._poll_running(group, progress, signals)
        else:
            self._on_ended(group, progress, signals)

    def _poll_running(self, group: RankGroup, progress: RankProgress, signals: int) -> None:
        if group.failure:
            group.terminate()  # the others would only wait for it
            return
        if self._go_on_live(group, progress):
            return
        if self.state.phase is JobPhase.STARTING and (not self._record.elastic or progress.pid == group.first):
            if self._paused_at is not None:
                pause, self._paused_at = self._clock() - self._paused_at, None
                self.state = self.state.model_copy(update={"stall_seconds": self.state.stall_seconds + pause})
                self._on_change_over(done=True, stall_seconds=pause)
            self._note(JobPhase.RUNNING, workers=group.workers, target=group.workers)
        target = self._desired()
        if not signals and target.request_id != self.state.request_id:
            self._change(group, target, progress)
        if self._stop_at is not None and self._clock() >= self._stop_at:
            _log.warning("workers-not-stopped", folder=str(self._folder.path), seconds=self._record.stop_seconds)
            self._stop_at = math.inf
            group.terminate()

    def _change(self, group: RankGroup, target: Target, progress: RankProgress) -> None:
        """Another size is wanted; a newer wish while workers stop just takes the older one's place."""
        if target.workers == group.workers and self._stop_at is None:
            self._note(self.state.phase, request_id=target.request_id)
            return
        phase = JobPhase.RESIZING if target.workers else JobPhase.SUSPENDING
        self._on_change_begun(group.workers, target)
        self._note(phase, target=target.workers, request_id=target.request_id)
        if self._stop_at is not None:
            return
        live = progress.live and progress.pid == group.first
        if target.workers and live and self._begin_live(group, target, progress):
            return
        self._stop(group)

    def _begin_live(self, group: RankGroup, target: Target, progress: RankProgress) -> bool:
        """Change the size while the workers train; whether that could be begun."""
        try:
            gpus = read_gpus(self._record.gpu_file)
            self._use(gpus[: max(target.workers, group.workers) * self._record.gpus])
            group.begin_change(target.workers, gpus)
        except OSError as error:
            _log.warning("workers-cannot-join", folder=str(self._folder.path), error=str(error))
            return False
        self._stalled_before = progress.stall_seconds
        return True

    def _go_on_live(self, group: RankGroup, progress: RankProgress) -> bool:
        """Go on with a change while the workers train; whether nothing else may be changed meanwhile."""
        change = group.go_on_change(self._files, progress)
        if change is GroupChange.DONE:
            stall = max(0.0, progress.stall_seconds - self._stalled_before)
            self.state = self.state.model_copy(update={"stall_seconds": self.state.stall_seconds + stall})
            self._on_change_over(done=True, stall_seconds=stall)
            self._use(read_gpus(self._record.gpu_file)[: group.workers * self._record.gpus])
            self._note(JobPhase.RUNNING, workers=group.workers, target=group.workers)
        elif change is GroupChange.FAILED:
            _log.warning("workers-did-not-join", folder=str(self._folder.path), target=self.state.target)
            was_called = group.give_up_change()
            self._files.forget_meetings()
            self._stop(group)
            if was_called:  # they may wait for one that does not come
                self._stop_at = self._clock() + self._record.grace_seconds
        elif change is GroupChange.WAITING and self._desired().request_id != self.state.request_id:
            group.give_up_change()  # and what is wished for now is begun
            self._files.forget_meetings()
            self._on_change_over(done=False)
            self._note(JobPhase.RUNNING, workers=group.workers, target=group.workers)
        else:
            return change is not GroupChange.NONE
        return False

    def _stop(self, group: RankGroup) -> None:
        """Let all workers stop after a common step, or end them."""
        self._paused_at = self._clock()
        self._stop_at = math.inf  # a script of a fixed size has no checkpoint that could be waited for
        if self._record.elastic:
            self._stop_at = self._clock() + self._record.stop_seconds
            self._files.stop_file.touch(mode=0o600)
        else:
            group.terminate()

    def _on_ended(self, group: RankGroup, progress: RankProgress, signals: int) -> None:
        failure = group.failure
        group.close()
        self.group = None
        stopping, self._stop_at = self._stop_at is not None, None
        self._files.stop_file.unlink(missing_ok=True)
        self._files.forget_meetings()
        if not failure and (progress.finished or not (self._record.elastic or stopping or signals)):
            self._on_change_over(done=False)
            self._note(JobPhase.FINISHED, workers=0, target=0)
        elif signals:
            self._on_change_over(done=False)
            self._note(JobPhase.SUSPENDED, workers=0, target=0)
        elif stopping or self._may_go_on(progress, group):
            self._begin(self._desired())
        else:
            failure = failure or "its script ended before the job did; does it train with elastic_runtime.join?"
            self._note(JobPhase.FAILED, workers=0, target=0, failure=failure)

    def _on_change_begun(self, before: int, target: Target) -> None:
        """A change is under way; one that was is now on its way there."""
        under_way, began, kept = self._under_way(), self._unix_clock(), self._changes
        if under_way is not None:
            began, kept = under_way.began_unix_seconds, kept[:-1]
        change = ScriptChange(
            request_id=target.request_id, before=before, workers=target.workers, began_unix_seconds=began
        )
        self._note_changes((*kept, change))

    def _on_change_over(self, *, done: bool, stall_seconds: float = 0.0) -> None:
        under_way = self._under_way()
        if under_way is not None:
            over = {"ended_unix_seconds": self._unix_clock(), "done": done, "stall_seconds": stall_seconds}
            self._note_changes((*self._changes[:-1], under_way.model_copy(update=over)))

    def _under_way(self) -> ScriptChange | None:
        last = self._changes[-1:]
        return last[0] if last and not last[0].ended_unix_seconds else None

    def _note_changes(self, changes: tuple[ScriptChange, ...]) -> None:
        self._changes = changes[-_KEPT_CHANGES:]
        with contextlib.suppress(OSError):  # a full disk: they are of interest, and nothing depends on them
            self._folder.write(ScriptChanges(changes=self._changes))

    def _use(self, gpus: tuple[str, ...]) -> None:
        if self._record.gpu_file is not None:
            write_used(self._record.gpu_file, {"workers": gpus})

    def _may_go_on(self, progress: RankProgress, group: RankGroup) -> bool:
        """Whether a run that ended is followed by another from the last checkpoint, and from when on."""
        if group.refused or not (self._record.elastic or group.drained):
            return False
        line = group.failure or "its workers ended before the job did"
        self._failures = self._failures.and_another(progress.step, self._unix_clock())
        pause_seconds = self._failures.pause_seconds(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        self._again_at = self._clock() + pause_seconds
        if not group.drained:
            counted = {"failures": self.state.failures + 1, "last_failure": f"{line} (at step {progress.step})"}
            self.state = self.state.model_copy(update=counted)
        _log.warning("workers-failed", folder=str(self._folder.path), line=line, pause_seconds=pause_seconds)
        return self._failures.in_a_row <= self._record.restarts

    def _note(self, phase: JobPhase, **changes: object) -> None:
        self.state = self.state.model_copy(update={"phase": phase, **changes})
        while True:
            try:
                self._folder.write(self.state)
            except OSError as error:
                # How a job ended is told by this file alone; what is under way is told again later.
                if phase not in OVER:
                    return
                _log.warning("state-not-written", folder=str(self._folder.path), error=str(error))
                if error.errno not in DISK_FULL:  # its folder is gone, say: that will not pass
                    return
                time.sleep(1.0)
            else:
                return

    def _sleep(self) -> None:
        try:
            self._news.get(timeout=_POLL_SECONDS)
            while True:  # several news are one look
                self._news.get_nowait()
        except queue.Empty:
            return


def main() -> int:
    """Look after the job whose folder is named; 0 if it finished or was suspended."""
    configure_logging("info")
    folder = ScriptFolder(Path(sys.argv[1]))
    try:
        with JobLock(folder.path):
            phase = ScriptSupervisor(folder, folder.record(), os.environ, launcher_clock()).run()
    except BadInput as error:  # somebody else's launcher, or files that are not as they were written
        print(error, file=sys.stderr)
        return BAD_INPUT
    return int(phase is JobPhase.FAILED)


if __name__ == "__main__":
    sys.exit(main())
