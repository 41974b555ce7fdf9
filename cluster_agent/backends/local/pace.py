"""Pace of decisions on this machine: soon after something has happened, and at least once a slot."""

from __future__ import annotations

from collections.abc import Callable

from cluster_agent.backends.local.running_jobs import RunningJobs
from policy_net.domain import Trigger

_CALM_POLL_SECONDS = 0.5
"""Between two looks at what only trains."""

_Presence = tuple[str, bool, bool]
"""A job that has not ended: its name, whether its user or another job holds it, whether it is being ended."""


class LocalPace:
    """Says when a decision is due: when something has happened since `debounce_seconds`, or after `slot_seconds`."""

    def __init__(
        self, jobs: RunningJobs, slot_seconds: float, debounce_seconds: float, clock: Callable[[], float]
    ) -> None:
        self.jobs = jobs
        self._slot_seconds = slot_seconds
        self._debounce_seconds = debounce_seconds
        self._clock = clock
        self._decided_seconds = -debounce_seconds
        self._known: frozenset[_Presence] = frozenset()
        self._known_losses = 0
        self._present, self._present_at = self._known, -1
        self._polled_seconds, self._polled_at = 0.0, -1

    @property
    def is_time_to_poll(self) -> bool:
        """At once where a user has asked for something; else every so often."""
        requested = self.jobs.table.changes != self._polled_at
        return requested or self._clock() - self._polled_seconds >= _CALM_POLL_SECONDS

    def poll(self) -> None:
        """See which jobs have ended, or are to."""
        self.jobs.poll()
        self._polled_seconds = self._clock()
        self.on_own_changes()

    def on_own_changes(self) -> None:
        """What was written to the table so far is nothing that a user wants."""
        self._polled_at = self.jobs.table.changes

    @property
    def is_due(self) -> bool:
        """Whether the next decision is to be taken: something has happened, or the slot is over."""
        waited = self._clock() - self._decided_seconds
        if waited >= self._slot_seconds:
            return True
        if waited < self._debounce_seconds:
            return False
        return self._presence() != self._known or self.jobs.losses != self._known_losses

    def on_decided(self) -> None:
        """A decision is being carried out from now on."""
        self._decided_seconds = self._clock()

    def trigger(self) -> Trigger:
        """What has happened since this was asked last."""
        present = self._presence()
        gone = {name for name, *_ in self._known} - {name for name, *_ in present}
        come = present - self._known
        self._known, self._known_losses = present, self.jobs.losses
        if come:
            return Trigger.ARRIVAL
        return Trigger.COMPLETION if gone else Trigger.SLOT

    def _presence(self) -> frozenset[_Presence]:
        table = self.jobs.table
        changes = table.changes
        if changes != self._present_at:
            self._present = frozenset(
                (record.name, record.held or record.depends, record.cancelling) for record in table.unended
            )
            self._present_at = changes
        return self._present
