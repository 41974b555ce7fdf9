"""How far a job had come when somebody last looked: what `status` and `list` show of a job that nobody runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from elastic_runtime.control.messages import JobStatus
from elastic_runtime.launcher.job_folder import JobFolder, write_json
from elastic_runtime.launcher.status_record import status_record

EVERY_SECONDS = 10.0
"""Often enough for somebody who asks what a lost job had reached; a write costs a millisecond."""


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
