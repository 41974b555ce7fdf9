"""How far a job had come when somebody last looked: what `status` and `list` show of a job that nobody runs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

from elastic_runtime.control.messages import JobStatus, RequestState
from elastic_runtime.launcher.job_folder import JobFolder, read_json, write_json
from elastic_runtime.launcher.status_record import status_record
from elastic_runtime.protocol.plan import Phase

EVERY_SECONDS = 10.0
"""Often enough for somebody who asks what a lost job had reached; a write costs a millisecond."""


def read_state(folder: JobFolder) -> dict[str, Any]:
    """How far the job had come when its launcher last looked, as `status_record` says it; empty if it never did.

    What is not as it was written, by another version or a failing disk, is left out.
    """
    found = read_json(folder.state_file) or {}
    usual = status_record(JobStatus(folder.name, Phase.STARTING, requests=(RequestState("", ""),), loss=0.0))
    (request,) = usual["requests"]
    state = {name: found[name] for name in usual if name in found and _is_like(found[name], usual[name])}
    if "requests" in state:
        state["requests"] = [row for row in state["requests"] if _is_like(row, request)]
    return state


def _is_like(value: object, usual: object) -> bool:
    if isinstance(usual, dict):
        return isinstance(value, dict) and all(name in value and _is_like(value[name], usual[name]) for name in usual)
    if isinstance(usual, int | float):
        return isinstance(value, int | float) and math.isfinite(value)
    return isinstance(value, type(usual))


class JobStateFile:
    """Writes `state.json` every so often; from one thread at a time."""

    def __init__(self, folder: JobFolder, clock: Callable[[], float]) -> None:
        self._path = folder.state_file
        self._clock = clock
        self._next_seconds = 0.0

    def due(self) -> bool:
        """Whether it is time; says so once."""
        if self._clock() < self._next_seconds:
            return False
        self._next_seconds = self._clock() + EVERY_SECONDS
        return True

    def make_due(self) -> None:
        """Something happened that is worth writing down."""
        self._next_seconds = 0.0

    def write(self, status: JobStatus) -> None:
        """Replace the file. A full disk leaves the one before: nothing depends on it."""
        with contextlib.suppress(OSError):
            write_json(self._path, status_record(status))
