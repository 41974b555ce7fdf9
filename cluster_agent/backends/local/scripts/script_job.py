"""Job without parameter servers as its agent handles it: found again by its launcher's lock, and asked by files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import structlog

from cluster_agent.backends.local.job_table import LocalJobRecord
from cluster_agent.backends.local.launchers import Launchers
from cluster_agent.backends.local.measured import JobProcesses, LocalMeasurement
from cluster_agent.backends.local.scripts.script_folder import ScriptFolder, ScriptRecord, ScriptState, Target
from cluster_agent.backends.local.shares.machine_shares import gpu_file
from elastic_runtime.checkpoint.rank_files import RankFiles
from elastic_runtime.launcher.warm.script_imports import MORE_VARIABLE
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import SUSPENDED, Allocation

_log = structlog.get_logger()
_LAUNCHER = "cluster_agent.backends.local.scripts.launcher"
_ALSO_IMPORTED = "elastic_runtime.worker.ranks.allreduce torch._dynamo"
"""What workers without parameter servers import as they join."""


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
            )
        )
        before = self._folder.read(ScriptState)
        # What an earlier launcher said is no news of this one; what it counted goes on.
        kept = {} if before is None else before.model_dump(include={"stall_seconds", "failures", "last_failure"})
        self._folder.write(ScriptState(phase=JobPhase.STARTING, target=allocation.workers, **kept))
        self._folder.write(Target(request_id="", workers=allocation.workers))
        command = [sys.executable, "-m", _LAUNCHER, str(self._folder.path)]
        environment, script = self._environment, None
        if file.elastic:
            environment, script = {**environment, MORE_VARIABLE: _ALSO_IMPORTED}, file.script
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
