"""The view that a state is published as."""

from __future__ import annotations

from elastic_runtime.coordinator.state import State, TaskState
from elastic_runtime.protocol.plan import View


def build_view(state: State, number: int) -> View:
    """What members have to know of a state."""
    generation, course = state.generation, state.course
    tasks = sorted(state.roster.tasks.values(), key=lambda task: (task.role, task.number))
    return View(
        number=number,
        generation=generation.number,
        phase=course.phase,
        start_step=generation.start_step,
        start_checkpoint=generation.start_checkpoint,
        start_plan=generation.start_plan,
        changes=generation.changes,
        proposal=generation.proposal,
        members=tuple(task.member() for task in tasks if task.live),
        committed=generation.committed,
        substitutes=dict(generation.substitutes),
        initialiser=course.initialiser,
        wanted=tuple(task.name for task in tasks if task.state is TaskState.WANTED),
        leaving=tuple(task.name for task in tasks if task.state is TaskState.LEAVING),
        failure=course.failure,
        lost_servers=generation.lost,
        notice=course.notice,
    )
