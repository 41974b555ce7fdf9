"""Registration of tasks: who is wanted may join, with the job's own model and terms."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from elastic_runtime.coordinator.rules import leases
from elastic_runtime.coordinator.rules.job import CoordinatedJob
from elastic_runtime.coordinator.rules.state import JobModel, Model, TaskState, read_model
from elastic_runtime.coordinator.rules.tasks import TASK_PREFIXES, lose
from elastic_runtime.errors import BadInput
from elastic_runtime.model.layout import Layout, difference
from elastic_runtime.protocol.plan import ENDED, JobPhase, TaskRole


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A task that asks to join; the JSONs are a worker's."""

    task: str
    role: TaskRole
    incarnation: int
    address_json: str
    layout_json: str = ""
    training_json: str = ""


def register(job: CoordinatedJob, newcomer: Newcomer, now: float) -> str:
    """Let a task in, or say in one line why not; the same incarnation may ask again."""
    name = newcomer.task
    if job.state.course.phase in ENDED:
        return f"job {job.settings.job} has {job.state.course.phase.value}; {name} is not needed any more"
    task = job.task(name)
    if task is not None and task.live and task.incarnation != newcomer.incarnation:
        # The process of before cannot be: its name was started anew.
        lose(job, name, "another process registered under its name")
        task = job.task(name)
    if task is None or task.state is TaskState.GONE or task.role is not newcomer.role:
        awaited = ", ".join(task.name for task in job.tasks(newcomer.role, TaskState.WANTED))
        return f"{name} is not wanted in job {job.settings.job}" + (f", which waits for {awaited}" if awaited else "")
    refusal = _address_refusal(job, newcomer) or _model_refusal(job, newcomer)
    if refusal:
        return refusal
    if task.state is TaskState.WANTED:
        incarnation, address_json = newcomer.incarnation, newcomer.address_json
        job.put(replace(task, state=TaskState.LIVE, incarnation=incarnation, address_json=address_json))
        job.reports.expect(name, incarnation, now, new=True)
    else:
        job.reports.on_sign_of_life(name, now)
    return ""


def is_not_needed(job: CoordinatedJob, name: str) -> bool:
    """Whether a task that was refused had a place in the job, which does without it by now."""
    if job.state.course.phase in ENDED:
        return job.state.course.phase is JobPhase.FINISHED
    task = job.task(name)
    prefix, _, number = name.rpartition("-")
    role = next((role for role, known in TASK_PREFIXES.items() if known == prefix), None)
    if task is not None and task.state is not TaskState.GONE:
        return False
    return role is not None and number.isdecimal() and int(number) < job.state.roster.next_number[role]


def _address_refusal(job: CoordinatedJob, newcomer: Newcomer) -> str:
    key = _public_key(newcomer.address_json)
    if key is None:
        return f"{newcomer.task} brought no address of a data plane: it is of another version"
    for task in job.tasks():
        if task.live and task.name != newcomer.task and bool(_public_key(task.address_json)) != bool(key):
            return (
                f"{newcomer.task} {'encrypts' if key else 'does not encrypt'} its data, and {task.name} "
                f"{'does not' if key else 'does'}: set ELASTIC_CURVE alike for all tasks of job {job.settings.job}"
            )
    return ""


def _public_key(address_json: str) -> str | None:
    """The CURVE key in an address, which may be empty; None if it is no address."""
    try:
        fields = json.loads(address_json)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
        return None
    key: str = fields.get("public_key", "")
    return key


def _model_refusal(job: CoordinatedJob, newcomer: Newcomer) -> str:
    if newcomer.role is TaskRole.SERVER:
        return ""
    try:
        model = read_model(newcomer.layout_json, newcomer.training_json)
    except BadInput as error:
        return f"{newcomer.task} brought no model: {error}"
    mine = job.model
    if mine is not None:
        return mine.refusal(model, newcomer.task)
    target = job.state.course.target
    try:
        model.check(target.servers, target.workers)
    except BadInput as error:
        return str(error)
    if job.settings.replicas > 1 and not model.training.synchronous:
        return (
            f"{newcomer.task} trains asynchronously, but job {job.settings.job} is to hold two copies of each block, "
            "and these would see updates in different orders: train synchronously, or leave out --replicas"
        )
    return _checkpoint_refusal(job, model, newcomer.task) or _take_model(job, newcomer)


def _checkpoint_refusal(job: CoordinatedJob, model: JobModel, task: str) -> str:
    """Refusal of a model that does not fit the checkpoint to begin from, or has nothing left to do."""
    restored = job.state.model.layout_json
    if restored:
        differs = difference(model.layout, Layout.from_json(restored.encode()))
        if differs:
            return f"{task} has another model than the checkpoint to begin from: {differs}"
    reached, total = job.durable_step(), model.total_steps
    if total is not None and reached > total:
        return f"the checkpoint to begin from is at step {reached}, this job ends at {total}: give more epochs or steps"
    return ""


def _take_model(job: CoordinatedJob, newcomer: Newcomer) -> str:
    """Take the first worker's model as the job's; the samples have to be those that a restored job has left."""
    before, job.state.model = job.state.model, Model(newcomer.layout_json, newcomer.training_json)
    try:
        leases.go_back(job, job.state.checkpoints.book_json)
    except BadInput as error:
        job.state.model = before
        return f"{newcomer.task} reads other samples than the checkpoint to begin from: {error}"
    return ""
