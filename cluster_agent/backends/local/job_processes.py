"""Processes of a job as its agent handles them: what is measured of them, and how they are started and asked.

An elastic job's coordinator is asked over the network; a script's launcher, which has none, by files.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from cluster_agent.backends.local.job_file import JobFile
from cluster_agent.backends.local.job_table import LocalJobRecord
from cluster_agent.backends.local.launchers import Launchers
from cluster_agent.backends.local.machine_shares import gpu_file, thread_variables
from cluster_agent.backends.local.scripts.script_folder import ScriptFolder, ScriptRecord, ScriptState, Target
from elastic_runtime.checkpoint.rank_files import RankFiles
from elastic_runtime.control.client import ControlClient
from elastic_runtime.control.messages import JobStatus, RequestOutcome, RequestState, Size
from elastic_runtime.errors import ElasticError
from elastic_runtime.launcher.job_folder import JobFolder, holder_of, read_json, remove_folder
from elastic_runtime.launcher.job_spec import spec_of
from elastic_runtime.launcher.job_status import client_of, read_state
from elastic_runtime.launcher.script_source import MORE_VARIABLE
from elastic_runtime.protocol.plan import JobPhase
from foundation.text import plain_line
from policy_net.domain import SUSPENDED, Allocation

_log = structlog.get_logger()
_CALL_SECONDS = 2.0
_SILENCE_SECONDS = 10.0
"""A coordinator that let a call wait to its deadline is not asked for so long; other jobs are looked at meanwhile."""
_LAUNCHER = "cluster_agent.backends.local.scripts.launcher"
_ALSO_IMPORTED = "elastic_runtime.worker.ranks.allreduce torch._dynamo"
"""What workers without parameter servers import as they join."""

_UNDER_WAY = frozenset({JobPhase.STARTING, JobPhase.RECOVERING, JobPhase.RESIZING, JobPhase.SUSPENDING})


@dataclass(frozen=True, slots=True)
class LocalMeasurement:
    """What a job's coordinator said of it last.

    Attributes:
        phase: None as long as nobody has said anything.
        running: size that works now; `desired` was requested last.
        samples: trained, repeated ones once.
        total_epochs: of the whole job, as its script says; 0: it has not.
        fresh: whether the coordinator said it just now; else it is what its launcher wrote down last.
        seen_unix_seconds: when it was fresh last; 0: not since this agent began.
        failures: of its script, after which it went on; `last_failure` is the newest, in a line.
        restarts: of a script of a fixed size, for whatever reason.
        damage: what of the job's folder cannot be used, in a line; empty if it was not in the way.
    """

    phase: JobPhase | None = None
    running: Allocation = SUSPENDED
    desired: Allocation = SUSPENDED
    samples: float = 0.0
    epoch: float = 0.0
    total_epochs: float = 0.0
    stall_seconds: float = 0.0
    failure: str = ""
    requests: tuple[RequestState, ...] = ()
    fresh: bool = False
    seen_unix_seconds: float = 0.0
    steps: float = 0.0
    failures: int = 0
    last_failure: str = ""
    damage: str = ""
    restarts: int = 0

    @property
    def current(self) -> Allocation:
        """What it has, or is about to have: a change that is under way goes on by itself.

        As long as nobody has said how far that is, it may have the more of both.
        """
        if not self.fresh:
            return self.running.most(self.desired)
        return self.desired if self.phase in _UNDER_WAY else self.running

    @property
    def is_steady(self) -> bool:
        """Whether it trains with what it was asked to have."""
        return self.phase is JobPhase.RUNNING and self.running == self.desired

    @property
    def is_ending(self) -> bool:
        """Whether nothing can be asked of it any more; its tasks may still write what they have trained."""
        return self.phase in (JobPhase.FINISHED, JobPhase.FAILED)

    @property
    def samples_per_epoch(self) -> float:
        """0 until the first sample."""
        return self.samples / self.epoch if self.epoch > 0 and self.samples > 0 else 0.0

    @property
    def steps_per_epoch(self) -> float:
        """0 until the first step."""
        return self.steps / self.epoch if self.epoch > 0 else 0.0


class JobProcesses(ABC):
    """A job's processes, whatever they are; they outlive who asks.

    Nothing is remembered here: whoever opens the job's folder next finds its launcher by the lock that it holds. A
    request has an id under which it may be sent again.
    """

    def __init__(
        self, jobs: Path, record: LocalJobRecord, environment: Mapping[str, str], launchers: Launchers
    ) -> None:
        """Take the folder of all jobs' folders; the environment is inherited, with the job's own `env`."""
        self.name = record.name
        self.log_folder = jobs / record.name / "logs"
        self._path = jobs / record.name
        self._file = record.file
        self._launchers = launchers
        self._environment = {**environment, **thread_variables(record.file.worker.cpu), **record.file.env}

    @property
    def launcher(self) -> int | None:
        """Process number of the launcher that looks after it now, or is about to; 0 where it has not said it yet."""
        try:
            holder = self._holder()
        except ElasticError:  # its own lock cannot be asked; what is handed to it by this agent can
            holder = None
        return self._launchers.running(self.name) if holder is None else holder

    @abstractmethod
    def start(self, allocation: Allocation) -> None:
        """Start it, or go on with it from its last checkpoint, under a launcher that outlives this process.

        Raises:
            OSError: it could not be started.
        """

    @abstractmethod
    def measure(self) -> LocalMeasurement:
        """How it is doing: as its coordinator says, or as its launcher wrote down last."""

    @abstractmethod
    def cpu_seconds(self) -> float | None:
        """Processor time that its processes have used, where its script alone says what it has trained; else None."""

    @abstractmethod
    def request(self, request_id: str, allocation: Allocation, *, resume: bool) -> str:
        """Ask for another size, 0/0 to suspend; what is refused is told in a line, empty: it was taken.

        `resume` says whether the job is suspended now.
        """

    def terminate(self) -> None:
        """Tell the launcher to end the job; told twice, it may do so at once, without a checkpoint."""
        launcher = self.launcher
        if launcher:
            with contextlib.suppress(ProcessLookupError):
                os.kill(launcher, signal.SIGTERM)

    def clear(self) -> None:
        """End whatever a launcher that is gone left behind."""
        self._launchers.clear(self.name)

    def begin_anew(self) -> None:
        """Forget a job that has trained nothing, so that its next start is a first one; its launcher is gone."""
        self.clear()
        remove_folder(self._path)

    def _holder(self) -> int | None:
        return holder_of(self._path)


class ElasticJob(JobProcesses):
    """One elastic job's processes; its coordinator is asked over the network."""

    def __init__(
        self,
        jobs: Path,
        record: LocalJobRecord,
        environment: Mapping[str, str],
        launchers: Launchers,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(jobs, record, environment, launchers)
        self._clock = clock
        self._silent_until_seconds = -math.inf
        self._jobs = jobs
        self._folder = JobFolder(jobs / record.name)
        if not record.file.worker.gpu:
            self._environment["CUDA_VISIBLE_DEVICES"] = ""
        self._client: ControlClient | None = None
        self._client_of: dict[str, Any] | None = None

    def _holder(self) -> int | None:
        return super()._holder() if self._folder.has_record else None

    def start(self, allocation: Allocation) -> None:
        """See `JobProcesses`."""
        size = [f"--ps={allocation.ps}", f"--workers={allocation.workers}", f"--folder={self._jobs}", "--quiet"]
        program = [sys.executable, "-m", "elastic_runtime.cli"]
        if self._folder.has_record:
            command = [*program, "resume", self.name, *size]
        else:
            remove_folder(self._folder.path)  # a launcher died before it had written what it is
            command = [
                *program,
                *size,
                f"--name={self.name}",
                f"--min-ps={self._file.ps.min}",
                f"--min-workers={self._file.worker.min}",
                f"--checkpoint-seconds={self._file.checkpoint_seconds}",
                f"--worker-threads={max(1, self._file.worker.cpu // 1000)}",
                *self._gpu_options(),
                *(f"--interpreter={word}" for word in self._interpreter()),
                "--joins-elsewhere",  # its submission has looked at that, or its file says so
                str(self._file.script),
                *self._file.args,
            ]
        folder = self._file.workdir or Path.cwd()
        ahead = _imported_ahead(self._file)
        number = self._launchers.spawn(self.name, command, folder, self._environment, ahead)
        _log.info("job-started", job=self.name, workers=allocation.workers, ps=allocation.ps, process=number)

    def measure(self) -> LocalMeasurement:
        """See `JobProcesses`."""
        if not self._folder.has_record:
            return LocalMeasurement()
        began = self._clock()
        if began < self._silent_until_seconds:
            return self._resting()
        try:
            return _measured(self._open_client().status())
        except ElasticError:
            self._close_client()
            if self._clock() - began >= _CALL_SECONDS / 2:
                self._silent_until_seconds = self._clock() + _SILENCE_SECONDS
            return self._resting()

    def cpu_seconds(self) -> None:
        """See `JobProcesses`: its coordinator counts what it trains."""
        return

    def request(self, request_id: str, allocation: Allocation, *, resume: bool) -> str:
        """See `JobProcesses`."""
        size = Size(allocation.ps, allocation.workers)
        try:
            client = self._open_client()
            outcome, detail = client.resume(request_id, size) if resume else client.resize(request_id, size)
        except ElasticError as error:
            self._close_client()
            return str(error)
        return detail or "given up" if outcome is RequestOutcome.ABORTED else ""

    def clear(self) -> None:
        """See `JobProcesses`."""
        self._close_client()
        super().clear()

    def _interpreter(self) -> tuple[str, ...]:
        return () if self._file.interpreter is None else self._file.interpreter_words(sys.executable)

    def _gpu_options(self) -> list[str]:
        each = self._file.worker.gpu
        return [f"--worker-gpus={each}", f"--gpu-file={gpu_file(self._jobs, self.name)}"] if each else []

    def _open_client(self) -> ControlClient:
        """The way to the coordinator, kept open from one look to the next; its place changes with its launcher."""
        place = read_json(self._folder.address_file)
        if self._client is None or place != self._client_of or holder_of(self._folder.path) is None:
            self._close_client()
            self._client = client_of(self._folder, _CALL_SECONDS)
            self._client_of = place
        return self._client

    def _close_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _resting(self) -> LocalMeasurement:
        state, damage = read_state(self._folder), self._damage()
        try:
            phase = JobPhase(str(state.get("phase")))
        except ValueError:  # nobody has written anything yet: it has what it was started with
            if damage:
                return LocalMeasurement(damage=damage)
            started = spec_of(self._folder.record(), self._folder.record_file)
            requested = Allocation(started.workers, started.servers) if self.launcher else SUSPENDED
            return LocalMeasurement(JobPhase.STARTING, SUSPENDED, requested)
        return LocalMeasurement(
            phase,
            _allocation(state.get("size", {})) if self.launcher else SUSPENDED,
            _allocation(state.get("target", {})) if self.launcher else SUSPENDED,
            float(state.get("samples", 0)),
            float(state.get("epoch", 0)),
            float(state.get("total_epochs", 0)),
            float(state.get("stall_seconds", 0)),
            str(state.get("failure", "")),
            steps=float(state.get("step", 0)),
            failures=int(state.get("failures", 0)),
            last_failure=str(state.get("last_failure", "")),
            damage=damage,
        )

    def _damage(self) -> str:
        """What of its folder keeps anybody from asking it, in a line; empty if nothing does."""
        try:
            holder_of(self._folder.path)
            spec_of(self._folder.record(), self._folder.record_file)
            self._folder.token()
        except ElasticError as error:
            return plain_line(str(error))
        return ""


def _allocation(size: Mapping[str, int]) -> Allocation:
    return Allocation(int(size.get("workers", 0)), int(size.get("ps", 0)))


def _measured(status: JobStatus) -> LocalMeasurement:
    return LocalMeasurement(
        status.phase,
        Allocation(status.size.workers, status.size.servers),
        Allocation(status.target.workers, status.target.servers),
        float(status.samples),
        status.epoch,
        status.total_epochs,
        status.stall_seconds,
        status.failure,
        status.requests,
        fresh=True,
        steps=float(status.step),
        failures=status.failures,
        last_failure=status.last_failure,
    )


def _imported_ahead(file: JobFile) -> Path | None:
    """The script whose imports are made before it starts; None where another Python runs it, or this with options."""
    return file.script if file.interpreter is None else None


class ScriptJob(JobProcesses):
    """One script's processes; `grace_seconds` lead from SIGTERM to SIGKILL."""

    def __init__(
        self,
        jobs: Path,
        record: LocalJobRecord,
        environment: Mapping[str, str],
        launchers: Launchers,
        grace_seconds: float = 10.0,
    ) -> None:
        super().__init__(jobs, record, environment, launchers)
        self._grace_seconds = grace_seconds
        self._gpu_file = gpu_file(jobs, record.name) if record.file.worker.gpu else None
        self._folder = ScriptFolder(jobs / record.name)

    def start(self, allocation: Allocation) -> None:
        """See `JobProcesses`; a script of a fixed size starts over."""
        self._folder.make()
        file = self._file
        self._folder.write(
            ScriptRecord(
                python=sys.executable,
                script=file.script,
                args=file.args,
                workdir=file.workdir or Path.cwd(),
                elastic=bool(file.elastic),
                gpus=file.worker.gpu,
                gpu_file=self._gpu_file,
                checkpoint_seconds=file.checkpoint_seconds,
                grace_seconds=self._grace_seconds,
                requeue=file.requeue,
                interpreter=None if file.interpreter is None else file.interpreter_words(sys.executable),
            )
        )
        before = self._folder.read(ScriptState)
        # What an earlier launcher said is no news of this one; what it counted goes on.
        kept = {} if before is None else before.counted
        self._folder.write(ScriptState(phase=JobPhase.STARTING, target=allocation.workers, **kept))
        self._folder.write(Target(request_id="", workers=allocation.workers))
        command = [sys.executable, "-m", _LAUNCHER, str(self._folder.path)]
        environment, script = self._environment, None
        if file.elastic:
            environment, script = {**environment, MORE_VARIABLE: _ALSO_IMPORTED}, _imported_ahead(file)
        number = self._launchers.spawn(self.name, command, self._folder.path, environment, script)
        _log.info("job-started", job=self.name, workers=allocation.workers, ps=0, process=number)

    def measure(self) -> LocalMeasurement:
        """How it is doing: what its launcher and its first worker wrote down last."""
        state, damage = self._folder.read(ScriptState), self._folder.damage()
        if state is None:
            return LocalMeasurement(damage=damage)
        alive = self.launcher is not None
        progress = RankFiles(self._folder.path).progress()
        return LocalMeasurement(
            state.phase,
            Allocation(state.workers) if alive else SUSPENDED,
            Allocation(state.target) if alive else SUSPENDED,
            float(progress.samples),
            progress.epoch,
            progress.total_epochs,
            state.stall_seconds,
            state.failure,
            fresh=alive,
            steps=float(progress.step),
            failures=state.failures,
            last_failure=state.last_failure,
            damage=damage,
            restarts=max(0, state.starts - 1),
        )

    def cpu_seconds(self) -> float | None:
        """See `JobProcesses`."""
        return self._launchers.cpu_seconds(self.name) if self._file.elastic else None

    def request(self, request_id: str, allocation: Allocation, *, resume: bool) -> str:
        """See `JobProcesses`; its launcher ends when it is suspended, so there is never one to resume."""
        del resume
        if allocation != SUSPENDED and not self._file.elastic:
            return "its script has a fixed size"
        self._folder.write(Target(request_id=request_id, workers=allocation.workers))
        return ""
