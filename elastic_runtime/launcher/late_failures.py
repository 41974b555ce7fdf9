"""Scripts that fail when their job is done: the model is trained, but what they had to do with it is not done."""

from __future__ import annotations

from elastic_runtime.launcher.task_table import TaskEnd
from elastic_runtime.protocol.plan import Phase, View


class LateFailures:
    """Remembers a worker that failed, until a later view shows that its job went on without it.

    Attributes:
        first: the first of those that failed since training ended, or as it did; None if none has.
    """

    def __init__(self) -> None:
        self.first: TaskEnd | None = None
        self._view_number = 0

    def note(self, end: TaskEnd, view: View) -> None:
        """A worker failed; `view` is the newest, and may be older than the job's end."""
        if self.first is None and view.phase is not Phase.FAILED:
            self.first, self._view_number = end, view.number

    def look(self, view: View) -> None:
        """A view: what failed before it was in time to be made good, if the job trains on."""
        if view.phase is not Phase.FINISHED and view.number > self._view_number:
            self.first = None
