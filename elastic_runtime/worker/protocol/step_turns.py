"""The turns of a worker at the steps, and its votes on proposed changes: no sockets, no threads, no clock.

A worker that accepts a proposed change promises not to begin the step at its clock before the proposal is confirmed or
withdrawn. All else goes on: with a clock some steps ahead nobody ever waits.

Source: DL2 §5 (the scaling clock). Deviation: workers agree to the clock before it holds, as two of them may be a step
apart when it is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastic_runtime.protocol.plan import JobPhase, Timeline, View
from foundation.python310 import StrEnum


class WorkerTurn(StrEnum):
    """What a worker is to do."""

    GO = "go"
    ENTER = "enter"
    """A new generation: pull all blocks at its first step, whatever was done since."""
    LEAVE = "leave"
    """Removed, or the job halts or is over: end the loop."""
    FAILED = "failed"
    EXPELLED = "expelled"
    SILENT = "silent"
    """The coordinator did not resolve a proposal in time."""


@dataclass(frozen=True, slots=True)
class Vote:
    """What a worker answers to a view; 0: nothing to answer."""

    accepted: int = 0
    refused: int = 0


class StepTurns:
    """One worker's turns, by the newest view.

    Attributes:
        begun: the step that the worker has begun last.
    """

    def __init__(self, name: str) -> None:
        self.view: View | None = None
        self.timeline: Timeline | None = None
        self._name = name
        self.begun = -1
        self._promised_clock: int | None = None

    def is_newer(self, view: View) -> bool:
        """Whether this view is to be taken up."""
        return self.view is None or view.number > self.view.number

    def timeline_of(self, view: View) -> Timeline:
        """The timeline of a newer view: a new one only where its plans are others, as a large model's takes time."""
        before, timeline = self.view, self.timeline
        if (
            before is None
            or timeline is None
            or view.generation != before.generation
            or (view.changes, view.substitutes, view.lost_servers)
            != (before.changes, before.substitutes, before.lost_servers)
        ):
            return Timeline(view)
        return timeline

    def on_view(self, view: View, timeline: Timeline) -> Vote:
        """Take up a newer view; returns the vote on its proposal."""
        if self.view is None or view.generation != self.view.generation:
            self.begun = -1
        self.view, self.timeline = view, timeline
        proposal = view.proposal
        self._promised_clock = None
        if proposal is None:
            return Vote()
        # One that joins has begun no step yet, and is asked as well.
        steps = (max(self.begun, view.start_step), max(proposal.clock, view.start_step))
        if not any(timeline.at(step).slices_of(self._name) for step in steps):
            return Vote()
        if self.begun >= proposal.clock:
            return Vote(refused=proposal.number)
        self._promised_clock = proposal.clock
        return Vote(accepted=proposal.number)

    def turn(self, step: int, generation: int, *, expelled: bool) -> WorkerTurn | None:
        """What the worker is to do at a step of a generation; None: to wait."""
        view, timeline = self.view, self.timeline
        if expelled:
            return WorkerTurn.EXPELLED
        if view is None or timeline is None:
            return None
        if view.phase is JobPhase.FAILED:
            return WorkerTurn.FAILED
        if view.generation != generation:
            return WorkerTurn.ENTER
        return self._turn_in_generation(step, view, timeline)

    def _turn_in_generation(self, step: int, view: View, timeline: Timeline) -> WorkerTurn | None:
        halts_at = timeline.halts_at()
        if (halts_at is not None and step >= halts_at) or not timeline.at(step).slices_of(self._name):
            return WorkerTurn.LEAVE
        promised = self._promised_clock is not None and step >= self._promised_clock
        barred = any(c.barrier and step >= c.clock and view.committed < c.number for c in view.changes)
        return None if promised or barred else WorkerTurn.GO
