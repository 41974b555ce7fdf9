"""Pace of the demonstration: how much work jobs get, so that all are done in time, also where others are busy too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

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
