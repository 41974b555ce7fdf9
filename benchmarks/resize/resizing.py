"""Resizes of a job, again and again, with quiet steps in between, and what is known of each."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.resize.running_job import JobSetup, RunningJob
from benchmarks.resize.steps import WorkerSteps, read_steps
from elastic_runtime.control.messages import JobStatus, RequestState, ResizeMode

AFTERMATH_SECONDS = 0.5
"""After a resize is seen to be done: processes that leave, end. Steps are not quiet before that."""
_WARM_STEPS = 20
"""Until processes, caches and the coordinator's idea of a step's length are as they will be."""


@dataclass(frozen=True, slots=True)
class Settling:
    """The quiet time after each resize: as many steps and seconds, whichever takes longer.

    Attributes:
        seconds: long enough for reports of what was waited to come in.
    """

    steps: int = 12
    seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Resize:
    """One resize as it went.

    Attributes:
        asked_seconds: monotonic, when it was asked for.
        done_seconds: when it was seen to be done.
        settled_seconds: when the next one might be asked for.
        request: what the coordinator says of it.
    """

    servers: int
    asked_seconds: float
    done_seconds: float
    settled_seconds: float
    request: RequestState


@dataclass(frozen=True, slots=True)
class Observation:
    """A job's life from its first resize on.

    Attributes:
        warm_seconds: monotonic, when steps began to count.
        total_seconds: from the start of its processes to their end.
    """

    resizes: tuple[Resize, ...]
    workers: tuple[WorkerSteps, ...]
    warm_seconds: float
    total_seconds: float


def observe(
    setup: JobSetup,
    mode: ResizeMode,
    resizes: int,
    folder: Path,
    settling: Settling,
    deadline_seconds: float,
    tell: Callable[[str], None],
) -> Observation:
    """Start a job, add a parameter server, remove one, and so on; `resizes` times.

    Args:
        folder: for the job's files; there is none yet, or it is empty.
        deadline_seconds: of every wait.
        tell: takes a line about each resize.

    Raises:
        ElasticError: the job failed, or something did not happen in time.
    """
    began = time.monotonic()
    done: list[Resize] = []
    with RunningJob(setup, folder, deadline_seconds) as job:
        warm_step = job.wait("the first steps", lambda status: status.step >= _WARM_STEPS).step
        warm = time.monotonic()
        _settle(job, warm, warm_step, settling)
        for number in range(resizes):
            servers = setup.servers + (number + 1) % 2
            asked = time.monotonic()
            job.resize(f"resize-{number}", servers, mode)
            ended = time.monotonic()
            _settle(job, ended + AFTERMATH_SECONDS, job.status().step, settling)
            request = job.request(f"resize-{number}")  # again: waits are known only after some reports
            done.append(Resize(servers, asked, ended, time.monotonic(), request))
            tell(f"resize {number + 1} of {resizes}, to {servers} PSs: {ended - asked:.1f} s")
    return Observation(tuple(done), tuple(read_steps(job.steps_folder)), warm, time.monotonic() - began)


def _settle(job: RunningJob, quiet_seconds: float, step: int, settling: Settling) -> None:
    """Wait for the steps and seconds, and for a whole step since `quiet_seconds` (monotonic): one is needed."""
    until = time.monotonic() + settling.seconds

    def settled(status: JobStatus) -> bool:
        now = time.monotonic()
        return (
            status.step >= step + settling.steps
            and now >= until
            and any(worker.during([(quiet_seconds, now)]) for worker in read_steps(job.steps_folder))
        )

    job.wait("the next steps", settled)
