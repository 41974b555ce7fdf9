"""Elastic job as its agent handles it: a launcher of its own, and requests to its coordinator."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from cluster_agent.backends.local.job_table import LocalJobRecord
from cluster_agent.backends.local.launchers import Launchers
from cluster_agent.backends.local.measured import JobProcesses, LocalMeasurement
from cluster_agent.backends.local.shares.machine_shares import gpu_file
from elastic_runtime.control.client import ControlClient
from elastic_runtime.control.messages import JobStatus, RequestOutcome, Size
from elastic_runtime.errors import ElasticError
from elastic_runtime.launcher.job_folder import JobFolder, holder_of, read_json, remove_folder
from elastic_runtime.launcher.job_spec import spec_of
from elastic_runtime.launcher.job_status import client_of, read_state
from elastic_runtime.protocol.plan import JobPhase
from foundation.text import plain_line
from policy_net.domain import SUSPENDED, Allocation

_log = structlog.get_logger()
_CALL_SECONDS = 2.0
_SILENCE_SECONDS = 10.0
"""A coordinator that let a call wait to its deadline is not asked for so long; other jobs are looked at meanwhile."""


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
                "--joins-elsewhere",  # its submission has looked at that, or its file says so
                str(self._file.script),
                *self._file.args,
            ]
        folder = self._file.workdir or Path.cwd()
        number = self._launchers.spawn(self.name, command, folder, self._environment, self._file.script)
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
            asked = Allocation(started.workers, started.servers) if self.launcher else SUSPENDED
            return LocalMeasurement(JobPhase.STARTING, SUSPENDED, asked)
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
