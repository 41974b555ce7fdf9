"""Bounds of a process that replays versions: niceness, processor time, address space, one thread."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping

_MEGABYTE = 2**20


def bound_this_process(limits: Mapping[str, float]) -> None:
    """Bound it; call before numpy is imported, which reads the number of its threads then.

    Args:
        limits: `nice`, `deadline_seconds` of the processor, `max_memory_mb`.
    """
    os.nice(int(limits["nice"]))
    seconds = max(1, int(limits["deadline_seconds"]))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    memory = int(limits["max_memory_mb"]) * _MEGABYTE
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
