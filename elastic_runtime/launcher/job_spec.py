"""Specification of a job: all that it takes to start it again from its folder, and command lines that follow from it.

Containers run the same command lines.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from elastic_runtime.control.credentials import is_loopback
from elastic_runtime.control.messages import Size
from elastic_runtime.errors import BadInput
from elastic_runtime.launcher.job_folder import JobFolder
from foundation.text import nearest, plain_line

WORKER = "worker"
COORDINATOR = "coordinator"
_OURS = {"PYTHONSAFEPATH": "1"}
"""Of processes that run none of the user's code: a `logging.py` in the folder where a job is started is not theirs."""


class JobSpec(BaseModel):
    """Written to a job's `job.json`: the options of `elastic-run run`, which says what they mean; paths absolute."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    script: Path
    arguments: tuple[str, ...] = ()
    python: str
    """The interpreter that runs the script and the parameter servers."""
    options: tuple[str, ...] = ()
    """Of the interpreter, where it runs the script; behind `-m` the script is the name of a module."""
    working_folder: Path
    servers: int = Field(ge=1)
    workers: int = Field(ge=1)
    minimum_servers: int = Field(1, ge=1)
    minimum_workers: int = Field(1, ge=1)
    replicas: int = Field(1, ge=1, le=2)
    checkpoints: Path | None = None
    checkpoint_seconds: float = Field(60.0, gt=0)
    restore: bool = False
    bind: str = "127.0.0.1"
    port: int = Field(0, ge=0, le=65535)
    metrics_port: int | None = Field(None, ge=1, le=65535)
    restarts: int = Field(3, ge=0)
    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    insecure: bool = False
    curve: bool = False
    worker_threads: int = Field(0, ge=0)
    """Of one worker's computations; 0: the cores that parameter servers leave, shared among the workers."""
    worker_gpus: int = Field(0, ge=0)
    """Of one worker, out of those in `gpu_file`; 0: workers see what the launcher sees."""
    cold: bool = False
    gpu_file: Path | None = None

    def record(self) -> dict[str, Any]:
        """As it is written."""
        return self.model_dump(mode="json")

    @property
    def is_module(self) -> bool:
        """Whether the script is the name of a module."""
        return self.options[-1:] == ("-m",)

    @property
    def on_one_machine(self) -> bool:
        """Whether the coordinator is reached by this machine alone, however that is best done there."""
        return self.certificate is None and self.port == 0 and is_loopback(f"{self.bind}:0")

    def threads_of_a_worker(self, workers: int, servers: int, environment: Mapping[str, str]) -> int:
        """Threads of a worker's computations, given how many workers and parameter servers there are.

        What the user set for OpenMP holds. Each parameter server has a core to itself: more threads than cores wait
        for each other in a loop, and make all slower.
        """
        if self.worker_threads:
            return self.worker_threads
        stated = environment.get("OMP_NUM_THREADS", "")
        if stated.isdigit() and int(stated) > 0:
            return int(stated)
        return max(1, (len(os.sched_getaffinity(0)) - servers) // max(1, workers))


def spec_of(record: Mapping[str, Any], where: Path) -> JobSpec:
    """Read a job's record.

    Raises:
        BadInput: something is missing or of another kind.
    """
    try:
        return JobSpec.model_validate({key: value for key, value in record.items() if key != "name"})
    except ValidationError as error:
        raise BadInput(f"{where}: {_problem(error)} (the file was changed); start the job anew") from error


def _problem(error: ValidationError) -> str:
    """Fault of a record that only we write: the field, and its value."""
    problems = error.errors()
    first = next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])
    place = plain_line(".".join(str(part) for part in first["loc"]))
    if first["type"] == "extra_forbidden":
        near = nearest(place, JobSpec.model_fields)
        return f"unknown field {place}" + (f"; did you mean {near}?" if near else "")
    if first["type"] == "missing":
        return f"field {place} is missing"
    return f"field {place} = {plain_line(repr(first['input']), 80)} cannot be"


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """Start of one process.

    Attributes:
        working_folder: where it runs; relative names in its arguments count from there.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    working_folder: Path
    log_file: Path
    descriptors: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Programs:
    """Command lines and environments of a job's processes."""

    spec: JobSpec
    folder: JobFolder
    environment: Mapping[str, str]
    size: Size | None = None
    """What a job that is started again goes on with, whatever it had; None: with what it had, or begins with."""

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints go."""
        return self.spec.checkpoints or self.folder.checkpoint_folder

    def coordinator(self, bind: str, listener: int | None, again: bool = False) -> tuple[str, ...]:
        """Command line of the coordinator.

        Args:
            listener: descriptor of the socket that listens there already; None: it listens itself.
            again: whether one of this launcher has served before: what that one started still runs.
        """
        spec = self.spec
        size = self.size or Size(spec.servers, spec.workers)
        metrics_host = None if spec.metrics_port is None else spec.bind
        optional = {
            "listener": listener,
            "metrics-host": metrics_host,
            "metrics-port": spec.metrics_port,
            "certificate": spec.certificate,
            "key": spec.key,
        }
        return (
            sys.executable,  # the script's environment need not have what a coordinator imports
            "-m",
            "elastic_runtime.coordinator",
            f"--job={self.folder.name}",
            f"--folder={self.folder.journal_folder}",
            f"--checkpoints={self.checkpoints}",
            f"--checkpoint-seconds={spec.checkpoint_seconds}",
            f"--token-file={self.folder.token_file}",
            f"--address-file={self.folder.address_file}",
            f"--bind={bind}",
            f"--servers={size.servers}",
            f"--workers={size.workers}",
            f"--minimum-servers={spec.minimum_servers}",
            f"--minimum-workers={spec.minimum_workers}",
            f"--restarts={spec.restarts}",
            f"--replicas={spec.replicas}",
            *(f"--{name}={value}" for name, value in optional.items() if value is not None),
            *(["--allow-insecure"] if spec.insecure else []),
            *(["--restore"] if spec.restore else []),
            *(["--relaunched"] if self.size is not None and not again else []),
        )

    def task(self, task: str) -> tuple[str, ...]:
        """Command line of a worker or a parameter server."""
        if is_worker(task):
            return (self.spec.python, *self.spec.options, str(self.spec.script), *self.spec.arguments)
        return (self.spec.python, "-m", "elastic_runtime.server", f"--task={task}")

    def coordinator_process(self, bind: str, listener: int | None, again: bool = False) -> ProcessSpec:
        """How to start the coordinator; see `coordinator`."""
        environment = {**self.environment, **_OURS, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
        log_file = self.folder.log_file(COORDINATOR)
        descriptors = () if listener is None else (listener,)
        command = self.coordinator(bind, listener, again)
        return ProcessSpec(command, environment, self.spec.working_folder, log_file, descriptors)

    def task_process(self, task: str, address: str, workers: int, servers: int) -> ProcessSpec:
        """How to start a task."""
        # Parameter servers use one thread: applying a block is bound by memory, and the workers need the cores.
        threads = self.spec.threads_of_a_worker(workers, servers, self.environment) if is_worker(task) else 1
        ours = {} if is_worker(task) else _OURS
        environment = {**self._environment(threads), **ours, "ELASTIC_COORDINATOR": address, "ELASTIC_TASK": task}
        return ProcessSpec(self.task(task), environment, self.spec.working_folder, self.folder.log_file(task))

    def fork_server_process(self) -> ProcessSpec:
        """What a process that is to become any of the tasks has in common with them.

        It has a worker's threads: what is loaded in it reads their number once.
        """
        threads = self.spec.threads_of_a_worker(self.spec.workers, self.spec.servers, self.environment)
        command = (self.spec.python, str(self.spec.script), *self.spec.arguments)
        log_file = self.folder.path / "fork-server.log"
        return ProcessSpec(command, self._environment(threads), self.spec.working_folder, log_file)

    def _environment(self, threads: int) -> dict[str, str]:
        return {
            **self.environment,
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": str(threads),
            "ELASTIC_JOB": self.folder.name,
            "ELASTIC_TOKEN_FILE": str(self.folder.token_file),
            "ELASTIC_CHECKPOINTS": str(self.checkpoints),
            "ELASTIC_BIND": self.spec.bind,
            "ELASTIC_CA_FILE": str(self.spec.ca or ""),
            "ELASTIC_INSECURE": str(int(self.spec.insecure)),
            "ELASTIC_CURVE": str(int(self.spec.curve)),
        }


def is_worker(task: str) -> bool:
    """Whether a task runs the user's script."""
    return task.rpartition("-")[0] == WORKER
