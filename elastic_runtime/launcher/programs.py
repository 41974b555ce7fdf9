"""The command lines and environments of a job's processes; containers run the same ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elastic_runtime.launcher.job_folder import JobFolder
from elastic_runtime.launcher.job_spec import JobSpec

WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Programs:
    """How to start what a job consists of.

    Attributes:
        environment: what the processes inherit; ours is added.
    """

    spec: JobSpec
    folder: JobFolder
    environment: Mapping[str, str]

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints go."""
        return self.spec.checkpoints or self.folder.checkpoint_folder

    def coordinator(self, port: int) -> tuple[str, ...]:
        """Command line of the coordinator; port 0: any that is free."""
        spec = self.spec
        optional = {"metrics-port": spec.metrics_port, "certificate": spec.certificate, "key": spec.key}
        return (
            spec.python,
            "-m",
            "elastic_runtime.coordinator",
            f"--job={self.folder.name}",
            f"--folder={self.folder.journal_folder}",
            f"--checkpoints={self.checkpoints}",
            f"--checkpoint-seconds={spec.checkpoint_seconds}",
            f"--token-file={self.folder.token_file}",
            f"--address-file={self.folder.address_file}",
            f"--bind={spec.bind}",
            f"--port={port}",
            f"--servers={spec.servers}",
            f"--workers={spec.workers}",
            f"--minimum-servers={spec.minimum_servers}",
            f"--minimum-workers={spec.minimum_workers}",
            f"--restarts={spec.restarts}",
            f"--replicas={spec.replicas}",
            *(f"--{name}={value}" for name, value in optional.items() if value is not None),
            *(["--allow-insecure"] if spec.insecure else []),
            *(["--restore"] if spec.restore else []),
        )

    def task(self, task: str) -> tuple[str, ...]:
        """Command line of a worker or a parameter server."""
        if is_worker(task):
            return (self.spec.python, str(self.spec.script), *self.spec.arguments)
        return (self.spec.python, "-m", "elastic_runtime.server", f"--task={task}")

    def coordinator_environment(self) -> dict[str, str]:
        """Environment of the coordinator."""
        return {**self.environment, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}

    def task_environment(self, task: str, address: str, workers: int) -> dict[str, str]:
        """Environment of a task.

        Args:
            address: `host:port` of the coordinator.
            workers: how many there are or will be, which share the cores.
        """
        # Parameter servers use one thread: applying a block is bound by memory, and the workers need the cores.
        threads = self.spec.threads_of_a_worker(workers, self.environment) if is_worker(task) else 1
        return {
            **self.environment,
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": str(threads),
            "ELASTIC_COORDINATOR": address,
            "ELASTIC_JOB": self.folder.name,
            "ELASTIC_TASK": task,
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
