"""Phases of a job and steps of a change: which may follow which, as tables; no other module sets either.

A change is proposed, agreed to, and carried out while the job trains; one at a time. A transition that is not in its
table is a fault of the rules: it is refused, so that it is neither journaled nor published.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from elastic_runtime.coordinator.rules.state import CoordinatorState, Purpose
from elastic_runtime.protocol.plan import Change, JobPhase
from foundation.python310 import StrEnum

PHASES_AFTER: Mapping[JobPhase, frozenset[JobPhase]] = MappingProxyType(
    {
        # Tasks gather; who waits for them may suspend the job, and too few of them do.
        JobPhase.STARTING: frozenset({JobPhase.RUNNING, JobPhase.SUSPENDING, JobPhase.SUSPENDED, JobPhase.FAILED}),
        # A suspend or a restart that a recovery interrupted goes on in RUNNING.
        JobPhase.RUNNING: frozenset(
            {
                JobPhase.RESIZING,
                JobPhase.SUSPENDING,
                JobPhase.SUSPENDED,
                JobPhase.STARTING,
                JobPhase.RECOVERING,
                JobPhase.FINISHED,
                JobPhase.FAILED,
            }
        ),
        # STARTING: by way of a checkpoint, or as a suspended job wakes.
        JobPhase.RESIZING: frozenset(
            {
                JobPhase.RUNNING,
                JobPhase.STARTING,
                JobPhase.SUSPENDED,
                JobPhase.RECOVERING,
                JobPhase.FINISHED,
                JobPhase.FAILED,
            }
        ),
        # STARTING: the halt that was agreed to before was that of a restart.
        JobPhase.SUSPENDING: frozenset(
            {JobPhase.SUSPENDED, JobPhase.STARTING, JobPhase.RECOVERING, JobPhase.FINISHED, JobPhase.FAILED}
        ),
        JobPhase.SUSPENDED: frozenset({JobPhase.RESIZING, JobPhase.SUSPENDING, JobPhase.FAILED}),
        # SUSPENDED: a job that was to be suspended has lost all workers.
        JobPhase.RECOVERING: frozenset({JobPhase.RUNNING, JobPhase.SUSPENDING, JobPhase.SUSPENDED, JobPhase.FAILED}),
        JobPhase.FINISHED: frozenset(),
        JobPhase.FAILED: frozenset(),
    }
)
"""A job may also enter the phase that it is in."""
TRAINING = frozenset({JobPhase.RUNNING, JobPhase.RESIZING, JobPhase.SUSPENDING})
"""Phases with a plan that holds."""
GATHERING = frozenset({JobPhase.STARTING, JobPhase.RECOVERING})


class ChangeStep(StrEnum):
    """Where the newest change of a generation is."""

    NONE = "none"
    PROPOSED = "proposed"
    MOVING = "moving"
    """It was agreed to, holds from its clock on, and is not over yet."""


STEPS_AFTER: Mapping[ChangeStep, frozenset[ChangeStep]] = MappingProxyType(
    {
        # MOVING at once: where nobody has to agree, as no worker has a step left to begin, or none is common to all.
        ChangeStep.NONE: frozenset({ChangeStep.PROPOSED, ChangeStep.MOVING}),
        ChangeStep.PROPOSED: frozenset({ChangeStep.NONE, ChangeStep.MOVING}),
        # A change that was agreed to is carried out, or the generation is over.
        ChangeStep.MOVING: frozenset({ChangeStep.NONE}),
    }
)


def enter(state: CoordinatorState, phase: JobPhase, **course: object) -> None:
    """Go over to a phase, and set other fields of the course.

    Raises:
        AssertionError: the phase cannot follow.
    """
    before = state.course.phase
    if phase is not before and phase not in PHASES_AFTER[before]:
        raise AssertionError(f"a job that is {before} becomes {phase}")
    state.set_course(phase=phase, **course)


def change_step(state: CoordinatorState) -> ChangeStep:
    """Where the newest change is."""
    generation = state.generation
    if generation.proposal is not None:
        return ChangeStep.PROPOSED
    return ChangeStep.MOVING if generation.moving else ChangeStep.NONE


def publish_proposal(state: CoordinatorState, change: Change, purpose: Purpose, minimum_bytes: int) -> None:
    """Ask the workers whether they agree to a change."""
    _step(state, ChangeStep.PROPOSED, proposal=change, purpose=purpose, minimum_bytes=minimum_bytes)


def withdraw_proposal(state: CoordinatorState) -> None:
    """Ask the workers no more; a change that they agreed to goes on."""
    if state.generation.proposal is not None:
        _step(state, ChangeStep.NONE, proposal=None)


def begin_change(state: CoordinatorState, change: Change, **generation: object) -> None:
    """Begin a change, which holds from its clock on; `generation`: fields of one that was not proposed before."""
    changes = (*state.generation.changes, change)
    _step(state, ChangeStep.MOVING, proposal=None, changes=changes, moving=change.number, **generation)


def end_change(state: CoordinatorState, change: Change, substitutes: Mapping[str, str]) -> None:
    """End a change; `substitutes`: who still stands in for whom."""
    committed = max(change.number, state.generation.committed)
    _step(state, ChangeStep.NONE, committed=committed, moving=0, substitutes=substitutes)


def withdraw_change(state: CoordinatorState, change: Change) -> None:
    """Take back a change that was agreed to, as the job ends before its clock."""
    changes = tuple(other for other in state.generation.changes if other.number != change.number)
    _step(state, ChangeStep.NONE, changes=changes, moving=0)


def drop_change(state: CoordinatorState) -> None:
    """Drop a proposed or begun change, as the generation ends."""
    if change_step(state) is not ChangeStep.NONE:
        _step(state, ChangeStep.NONE, proposal=None, moving=0)


def _step(state: CoordinatorState, step: ChangeStep, **generation: object) -> None:
    before = change_step(state)
    if step not in STEPS_AFTER[before]:
        raise AssertionError(f"a change that is {before} becomes {step}")
    state.set_generation(**generation)
