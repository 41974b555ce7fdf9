"""Jobs of the demonstration, as files that a user would write, and how much work they get.

There are three kinds of model, a short and a long one of each; all are to be done in time, also where others are busy.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@dataclass(frozen=True, slots=True)
class Example:
    """A script and how it is run.

    Attributes:
        folder: of the script, in `EXAMPLES`.
        communication: as a job file says it.
        global_batch: large enough that a second worker has something to do.
    """

    folder: str
    model_type: str
    communication: str
    global_batch: int


DIGITS = Example("digits", "digits-cnn", "PS", 256)
GPT = Example("gpt", "small-gpt", "PS", 64)
TABULAR = Example("tabular", "tabular-mlp", "AllReduce", 128)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One job and when it comes: after the first one trained, however long its start took."""

    name: str
    example: Example
    epochs: int
    after_seconds: float

    def file(self, cores: int) -> dict[str, Any]:
        """Its file; what a job may have at most grows with the cores that all share."""
        example = self.example
        # More than half a core each: a job's second worker brings it the use of a second core.
        tasks: dict[str, Any] = {"worker": {"min": 1, "max": max(3, min(6, cores)), "cpu": "550m"}}
        if example.communication == "PS":
            tasks["ps"] = {"min": 1, "max": max(1, min(2, cores // 2)), "cpu": "100m"}
        return {
            "name": self.name,
            "modelType": example.model_type,
            "communication": example.communication,
            "work": {"epochs": self.epochs},
            **tasks,
            "script": str(EXAMPLES / example.folder / "train.py"),
            "args": ["--epochs", str(self.epochs), "--global-batch", str(example.global_batch)],
            "env": {"OMP_NUM_THREADS": "1"},
            "checkpointSeconds": 20,
        }


ARRIVALS = (
    Arrival("gpt-long", GPT, 14, 0.0),
    Arrival("digits-short", DIGITS, 60, 20.0),
    Arrival("tabular-short", TABULAR, 80, 32.0),
    Arrival("gpt-short", GPT, 2, 44.0),
    Arrival("digits-long", DIGITS, 150, 52.0),
    Arrival("tabular-long", TABULAR, 200, 60.0),
)
"""In the order in which they come. The first is alone for a while; then there are more than two cores have room for."""


_SOONEST = 0.5
"""Starting takes as long, however little a job then trains."""


def arrivals(count: int, work: float) -> tuple[Arrival, ...]:
    """The first so many jobs, each with so much of its work; those of less work come sooner, but never all at once."""
    sooner = min(1.0, max(_SOONEST, work))
    return tuple(
        replace(job, epochs=max(1, round(job.epochs * work)), after_seconds=job.after_seconds * sooner)
        for job in ARRIVALS[:count]
    )


_POLL_SECONDS = 1.0
_MOST_PROBES = 8
_PROBE = """
import time
began, used = time.perf_counter(), time.process_time()
while time.perf_counter() - began < float(__import__("sys").argv[1]):
    pass
print((time.process_time() - used) / (time.perf_counter() - began))
"""
_USUAL_CORES = 2.0
"""For which the jobs' usual work is meant: on two idle cores they are done after some three minutes."""
_USUAL_SECONDS, _START_SECONDS = 280.0, 90.0
"""Of these two cores: what all of it takes, and of that what goes into starting processes, whatever these then do."""
_LEAST = 0.05


def free_cores(cores: int) -> float:
    """So many of this machine's cores does a newcomer get now, by trying for a second."""
    probes = min(cores, _MOST_PROBES)
    running = [
        subprocess.Popen(  # noqa: S603  (our own words)
            [sys.executable, "-c", _PROBE, str(_POLL_SECONDS)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(probes)
    ]
    shares = [_number(probe.communicate()[0]) for probe in running]
    return cores * sum(shares) / probes


def share_of_work(cores: float) -> float:
    """How much of their usual work jobs can do in the usual time with so many cores; at most all of it."""
    left = min(cores / _USUAL_CORES, 1.0) * _USUAL_SECONDS - _START_SECONDS
    return min(1.0, max(_LEAST, left / (_USUAL_SECONDS - _START_SECONDS)))


def said(cores: int, free: float, work: float) -> Sequence[str]:
    """What to tell who looks on; nothing where there is nothing to tell."""
    if work >= 1.0:
        return ()
    return (f"others keep this machine busy ({free:.1f} of {cores} cores are free): jobs get {work:.0%} of their work",)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # it was killed: somebody needs the machine more
        return 0.0
