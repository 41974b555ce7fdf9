"""Resizes of a job, again and again, with quiet steps in between, and what is known of each."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.resize.running_job import JobSetup, RunningJob
from elastic_runtime.control.messages import JobStatus, RequestState, ResizeMode


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one worker's process.

    Attributes:
        number: the global step.
        began_seconds: monotonic, when its batch was there.
        seconds: until the next step's was.
        stall_seconds: of these, what the worker says it waited because of a resize.
    """

    number: int
    began_seconds: float
    seconds: float
    stall_seconds: float


@dataclass(frozen=True, slots=True)
class WorkerSteps:
    """The steps of one process, in order, and the time at which the last one began that it wrote of."""

    task: str
    steps: tuple[Step, ...]
    first_seconds: float
    last_seconds: float

    def between(self, first: int, last: int) -> list[Step]:
        """Steps with numbers from `first` to `last`, inclusive."""
        return [step for step in self.steps if first <= step.number <= last]

    def during(self, spans: Iterable[tuple[float, float]]) -> list[Step]:
        """Steps that lie wholly in one of these times."""
        return [
            step
            for begin, end in spans
            for step in self.steps
            if begin <= step.began_seconds and step.began_seconds + step.seconds <= end
        ]


def read_steps(folder: Path) -> list[WorkerSteps]:
    """All processes' steps, the earliest process first; those that wrote fewer than two lines are left out."""
    found = [_read(path) for path in folder.glob("*.steps")]
    return sorted((worker for worker in found if worker is not None), key=lambda worker: worker.first_seconds)


def _read(path: Path) -> WorkerSteps | None:
    lines = path.read_text(encoding="ascii").split("\n")[:-1]  # the last one may have been cut by the end
    rows = [(int(step), float(began), float(stall)) for step, began, stall in (line.split() for line in lines)]
    if len(rows) < 2:  # a step ends where the next begins
        return None
    steps = tuple(
        Step(number, began, next_began - began, next_stall - stall)
        for (number, began, stall), (_, next_began, next_stall) in itertools.pairwise(rows)
    )
    return WorkerSteps(path.name.partition(".")[0], steps, rows[0][1], rows[-1][1])


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
    report: Callable[[str], None],
) -> Observation:
    """Start a job, add a parameter server, remove one, and so on; `resizes` times.

    Args:
        folder: for the job's files; there is none yet, or it is empty.
        deadline_seconds: of every wait.
        report: takes a line about each resize.

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
            report(f"resize {number + 1} of {resizes}, to {servers} PSs: {ended - asked:.1f} s")
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
