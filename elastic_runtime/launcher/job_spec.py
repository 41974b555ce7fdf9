"""What a job was started with: everything that is needed to start it again from its folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from elastic_runtime.errors import BadInput


class JobSpec(BaseModel):
    """Written to a job's `job.json`; paths are absolute."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    script: Path
    arguments: tuple[str, ...] = ()
    python: str
    """The interpreter that runs the script and our own processes."""
    working_folder: Path
    servers: int = Field(ge=1)
    workers: int = Field(ge=1)
    minimum_servers: int = Field(1, ge=1)
    minimum_workers: int = Field(1, ge=1)
    checkpoints: Path | None = None
    """Where they go; None: below the job's folder."""
    bind: str = "127.0.0.1"
    """Address that the coordinator and the data plane listen on."""
    port: int = Field(0, ge=0, le=65535)
    """The coordinator's; 0: any that is free."""
    restarts: int = Field(3, ge=0)
    """Failures of the script that the job survives."""
    worker_threads: int = Field(0, ge=0)
    """Of one worker's computations; 0: the cores shared among the workers."""

    def record(self) -> dict[str, Any]:
        """As it is written."""
        return self.model_dump(mode="json")

    def threads_of_a_worker(self, workers: int, environment: Mapping[str, str]) -> int:
        """How many threads a worker's computations get, given how many workers there are.

        What the user set for OpenMP holds; more threads than cores make all workers slower.
        """
        if self.worker_threads:
            return self.worker_threads
        stated = environment.get("OMP_NUM_THREADS", "")
        if stated.isdigit() and int(stated) > 0:
            return int(stated)
        return max(1, len(os.sched_getaffinity(0)) // max(1, workers))


def spec_of(record: Mapping[str, Any], where: Path) -> JobSpec:
    """Read a job's record.

    Raises:
        BadInput: something is missing or of another kind.
    """
    try:
        return JobSpec.model_validate({key: value for key, value in record.items() if key != "name"})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"{where}: {place}: {first['msg']}; start the job anew") from error


def check_script(script: Path) -> Path:
    """The absolute path of a script that Python can run.

    Raises:
        BadInput: missing, a folder, unreadable, or no Python.
    """
    if not script.exists():
        raise BadInput(f"{script}: there is no such file; name the Python script that trains")
    if not script.is_file():
        raise BadInput(f"{script}: is no file; name the Python script that trains")
    try:
        source = script.read_bytes()
        compile(source, str(script), "exec", dont_inherit=True)
    except OSError as error:
        raise BadInput(f"{script}: cannot be read ({error.strerror})") from error
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.lineno else ""
        raise BadInput(f"{script}{where}: is no Python ({error.msg})") from error
    except ValueError as error:  # null bytes
        raise BadInput(f"{script}: is no Python ({error})") from error
    return script.absolute()
