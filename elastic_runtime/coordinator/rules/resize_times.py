"""When the resize that is carried out came to what; forgotten with the coordinator, as it is only told, never acted on.

Source: DL2 §5, whose four steps are registration, parameter assignment, parameter migration and worker update.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ResizeTimes:
    """Monotonic seconds of a coordinator's events; None: not yet.

    Attributes:
        began: it was begun with.
        registered: its new tasks had all registered.
        ready: they were ready to be named in a plan.
        proposed: the newest proposal was published.
        confirmed: all workers had agreed.
        assignment_seconds: what it took to find new owners.
    """

    began: float
    registered: float | None = None
    ready: float | None = None
    proposed: float | None = None
    confirmed: float | None = None
    assignment_seconds: float = 0.0

    def note_registered(self, now: float) -> None:
        """The new tasks are there; the first time counts."""
        self.registered = now if self.registered is None else self.registered

    def note_ready(self, now: float) -> None:
        """The new tasks are ready; the first time counts."""
        self.note_registered(now)
        self.ready = now if self.ready is None else self.ready

    @property
    def start_seconds(self) -> float:
        """Until the new tasks' processes had come up and registered."""
        return _between(self.began, self.registered)

    @property
    def registration_seconds(self) -> float:
        """From then on until they were ready."""
        return _between(self.registered, self.ready)

    @property
    def agreement_seconds(self) -> float:
        """From the proposal to its confirmation."""
        return _between(self.proposed, self.confirmed)

    def migration_seconds(self, now: float) -> float:
        """From the confirmation until `now`, when all blocks have arrived."""
        return _between(self.confirmed, now)


def _between(first: float | None, second: float | None) -> float:
    return 0.0 if first is None or second is None else second - first
