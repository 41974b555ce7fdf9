"""Records that a job's workers wrote about their steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


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
