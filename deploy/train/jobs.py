"""Jobs of the demonstration, as files that a user would write, and how much work they get.

There are three kinds of model, a short and a long one of each; all are to be done in time, also where others are busy.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from deploy.demonstration.frame import filled

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
_FILES = Path(__file__).with_name("jobs.yaml")


@dataclass(frozen=True, slots=True)
class Arrival:
    """One job and when it comes: after the first one trained, however long its start took."""

    name: str
    model_type: str
    epochs: int
    after_seconds: float

    def file(self, cores: int) -> dict[str, Any]:
        """Its file; what a job may have at most grows with the cores that all share."""
        workers, servers = max(3, min(6, cores)), max(1, min(2, cores // 2))
        words = {"name": self.name, "epochs": self.epochs, "workers": workers, "servers": servers}
        return next(file for file in filled(_FILES, examples=EXAMPLES, **words) if file["modelType"] == self.model_type)


ARRIVALS = (
    Arrival("gpt-long", "small-gpt", 14, 0.0),
    Arrival("digits-short", "digits-cnn", 60, 20.0),
    Arrival("tabular-short", "tabular-mlp", 80, 32.0),
    Arrival("gpt-short", "small-gpt", 2, 44.0),
    Arrival("digits-long", "digits-cnn", 150, 52.0),
    Arrival("tabular-long", "tabular-mlp", 200, 60.0),
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


_PROBE = """
import time
began, used = time.perf_counter(), time.process_time()
while (passed := time.perf_counter() - began) < 1.0:
    pass
print((time.process_time() - used) / passed)
"""
_MOST_PROBES = 8
_USUAL_CORES = 2.0
"""For which the jobs' usual work is meant: on two idle cores they are done after some three minutes."""
_USUAL_SECONDS, _START_SECONDS = 280.0, 90.0
"""Of these two cores: what all of it takes, and of that what goes into starting processes, whatever these then do."""
_LEAST = 0.05


def free_cores(cores: int) -> float:
    """So many of this machine's cores does a newcomer get now, by trying for a second."""
    probes = min(cores, _MOST_PROBES)
    command = [sys.executable, "-c", _PROBE]
    # All are started before the first is waited for, so that they compete. Their words are our own.
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(probes)]  # noqa: S603
    return cores * fmean(_share_of_core(probe.communicate()[0]) for probe in running)


def _share_of_core(said: str) -> float:
    try:
        return float(said)
    except ValueError:  # it was killed: somebody needs the machine more
        return 0.0


def share_of_work(cores: float) -> float:
    """How much of their usual work jobs can do in the usual time with so many cores; at most all of it."""
    left = min(cores / _USUAL_CORES, 1.0) * _USUAL_SECONDS - _START_SECONDS
    return min(1.0, max(_LEAST, left / (_USUAL_SECONDS - _START_SECONDS)))
