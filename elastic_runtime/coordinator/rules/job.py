"""One job as its coordinator sees it now: the state, what members reported of it, and what both mean together.

What members reported, and since when something is waited for, is forgotten with the coordinator: they report it again,
and get the whole time again. So are notes of the rules (`memory`), and what one rule keeps for itself (`own`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from elastic_runtime.control.messages import MemberReport, Size
from elastic_runtime.coordinator.rules.phases import TRAINING
from elastic_runtime.coordinator.rules.settings import CoordinatorSettings
from elastic_runtime.coordinator.rules.state import CoordinatorState, Generation, JobModel, Task, TaskState, read_model
from elastic_runtime.protocol.plan import Change, JobPhase, Plan, TaskRole, Timeline, View, without_lost

_Own = TypeVar("_Own")
_END = 2**62
"""Behind every step."""


@dataclass
class Memory:
    """Notes of the rules from one event to the next.

    Attributes:
        margin_factor: how much further ahead than usual the next clock is; doubled by a proposal that came too late.
        written_without: servers that were lost already when the newest checkpoint was begun.
        searched_generation: for which a sound checkpoint is looked for; 0: none.
        halt_tries: how often in turn the checkpoint of a halt was not written.
        paused_until_seconds: before that no worker takes the place of one whose script failed.
    """

    margin_factor: int = 1
    written_without: set[str] = field(default_factory=set)
    searched_generation: int = 0
    halt_tries: int = 0
    released: set[str] = field(default_factory=set)
    paused_until_seconds: float = 0.0


class CoordinatedJob:
    """State, reports and timers of one job, with the questions that all rules ask.

    Args:
        unix_clock: the time of day in seconds, for people to read.
    """

    def __init__(self, settings: CoordinatorSettings, state: CoordinatorState, unix_clock: Callable[[], float]) -> None:
        self.settings = settings
        self.state = state
        self.reports = Reports()
        self.timers = Timers()
        self.memory = Memory()
        self.unix_clock = unix_clock
        self._own: dict[type[Any], Any] = {}
        self._planned: tuple[Generation, dict[int, tuple[Plan, Plan]]] = (state.generation, {})

    def own(self, kind: type[_Own]) -> _Own:
        """Memory of one rule about this job; made when it is first asked for."""
        kept: _Own | None = self._own.get(kind)
        if kept is None:
            kept = self._own[kind] = kind()
        return kept

    @property
    def model(self) -> JobModel | None:
        """The model in training; None until the first worker came."""
        model = self.state.model
        return read_model(model.layout_json, model.training_json) if model.training_json else None

    @property
    def is_training(self) -> bool:
        """Whether a plan holds, and steps are done by it."""
        return self.state.course.phase in TRAINING

    @property
    def is_asynchronous(self) -> bool:
        """Whether workers train each for itself."""
        model = self.model
        return model is not None and not model.training.synchronous

    def total_steps(self) -> int:
        """Steps of the whole job, or updates in asynchronous training; 0 if unknown."""
        ends_at, model = self.state.generation.ends_at, self.model
        if ends_at is not None:
            return ends_at
        return model.order.total_steps if model is not None else 0

    def durable_step(self) -> int:
        """The step that the job goes back to if a server is lost."""
        durable = self.state.checkpoints.durable
        return durable[-1][1] if durable else 0

    def task(self, name: str) -> Task | None:
        """A task by its name."""
        return self.state.roster.tasks.get(name)

    def tasks(self, role: TaskRole | None = None, *states: TaskState) -> list[Task]:
        """Tasks of a role (None: both) in some states (none: all), in the order in which they were wanted."""
        found = [
            task
            for task in self.state.roster.tasks.values()
            if (role is None or task.role is role) and (not states or task.state in states)
        ]
        return sorted(found, key=lambda task: task.number)

    def live(self, role: TaskRole) -> list[str]:
        """Names of the live tasks that were not told to leave."""
        return [task.name for task in self.tasks(role, TaskState.LIVE)]

    def is_alive(self, name: str) -> bool:
        """Whether a task is registered and not lost; also one that was told to leave."""
        task = self.task(name)
        return task is not None and task.live

    def put(self, *tasks: Task) -> None:
        """Replace tasks by their names; who is gone is forgotten, as numbers are not used again."""
        roster = self.state.roster
        changed = {task.name: task for task in tasks}
        if any(roster.tasks.get(name) != task for name, task in changed.items()):
            now = {**roster.tasks, **changed}
            kept = {name: task for name, task in now.items() if task.state is not TaskState.GONE}
            self.state.roster = replace(roster, tasks=kept)

    def report(self, name: str) -> MemberReport:
        """What a task reported of this generation; an empty report if it has not come to it yet."""
        report = self.reports.of(name)
        if report.generation != self.state.generation.number:
            return MemberReport(report.task, report.incarnation)
        return report

    def has_reported(self, name: str) -> bool:
        """Whether a task has reported from this generation, to this coordinator."""
        return self.report(name).generation > 0 and self.reports.contact(name).reported

    def plan(self) -> Plan:
        """The plan after all confirmed changes, lost workers included."""
        return self._plans_up_to(_END)[0]

    def plan_before(self, change: Change) -> Plan:
        """The plan that a change changes, lost workers included."""
        return self._plans_up_to(change.number - 1)[0]

    def named(self) -> Plan:
        """The newest plan with the lost servers that it still names; `plan` has the other holders in their place."""
        return self._plans_up_to(_END)[1]

    def named_before(self, change: Change) -> Plan:
        """Likewise the plan that a change changes."""
        return self._plans_up_to(change.number - 1)[1]

    def named_after(self, change: Change) -> Plan:
        """Likewise the plan right after a confirmed change."""
        return self._plans_up_to(change.number)[1]

    def _plans_up_to(self, number: int) -> tuple[Plan, Plan]:
        """Plans after a change, without lost servers and with them; kept, as each report asks several times."""
        generation, known = self.state.generation, self._planned[0]
        if (
            known.start_plan is not generation.start_plan
            or known.changes is not generation.changes
            or known.lost != generation.lost
        ):
            self._planned = (generation, {})
        plans = self._planned[1]
        if number not in plans:
            until = tuple(change for change in generation.changes if change.number <= number)
            named = Timeline(_view(generation, until)).at(_END)
            plans[number] = (without_lost(named, frozenset(generation.lost)), named)
        return plans[number]

    def moving_change(self) -> Change | None:
        """The confirmed change that is not over yet."""
        generation = self.state.generation
        return next((change for change in generation.changes if change.number == generation.moving), None)

    def holders(self) -> set[str]:
        """Servers that hold blocks, or that a change takes blocks from."""
        servers = set(self.plan().servers)
        moving = self.moving_change()
        return servers | set(self.plan_before(moving).servers) if moving is not None else servers

    def live_workers(self) -> list[str]:
        """The live workers of the newest plan, each once."""
        return [name for name in dict.fromkeys(self.plan().workers) if self.is_alive(name)]

    def halt(self) -> Change | None:
        """The confirmed change that stops the job."""
        return next((change for change in self.state.generation.changes if change.halt), None)

    def size(self) -> Size:
        """Running size: tasks of the newest plan."""
        if not self.is_training:
            return Size(0, 0)
        plan = self.plan()
        return Size(len(plan.servers), len(self.live_workers()))


def _view(generation: Generation, changes: tuple[Change, ...]) -> View:
    return View(
        number=0,
        generation=generation.number,
        phase=JobPhase.RUNNING,
        start_step=generation.start_step,
        start_checkpoint="",
        start_plan=generation.start_plan,
        changes=changes,
    )


@dataclass
class Contact:
    """One member, as it was heard last.

    Attributes:
        seconds: when its newest report came; monotonic.
        step_seconds: when it came to the step that it reports.
        new: it registered, and has not followed or reported yet: it still starts.
        renewed: it was given the whole time again after a gap, and not heard since.
    """

    report: MemberReport
    seconds: float
    step_seconds: float
    reported: bool = False
    streams: int = 0
    new: bool = False
    renewed: bool = False


class Reports:
    """The newest report of each live task."""

    def __init__(self) -> None:
        self._contacts: dict[str, Contact] = {}

    def expect(self, task: str, incarnation: int, now: float, new: bool = False) -> None:
        """Give a task the whole time to report: it registered (`new`), or the coordinator began with it."""
        self._contacts[task] = Contact(MemberReport(task, incarnation), now, now, new=new)

    def on_sign_of_life(self, task: str, now: float) -> None:
        """It was heard of in another way, such as a server that asks again for the job's model."""
        contact = self._contacts[task]
        contact.seconds, contact.renewed = now, False

    def on_gap(self, task: str, now: float) -> None:
        """Give a task the whole time again, as the coordinator could hear nobody for a while.

        Once only until the task is heard again: a coordinator may be late at every look, and a task dead all the same.
        """
        contact = self._contacts[task]
        if not contact.renewed:
            contact.seconds, contact.renewed = now, True

    def on_report(self, report: MemberReport, now: float) -> None:
        """Take a report."""
        contact = self._contacts[report.task]
        before = contact.report
        if (before.generation, before.step) != (report.generation, report.step):
            contact.step_seconds = now
        contact.report, contact.seconds, contact.reported = report, now, True
        contact.new = contact.renewed = False

    def on_stream(self, task: str, opened: bool, now: float) -> None:
        """A task's stream of views was opened or closed."""
        contact = self._contacts.get(task)
        if contact is not None:
            # A stream that broke may be noticed after the next one was opened.
            contact.streams = max(0, contact.streams + (1 if opened else -1))
            if opened:
                contact.seconds, contact.new, contact.renewed = now, False, False

    def forget(self, task: str) -> None:
        """Forget a task that is gone."""
        self._contacts.pop(task, None)

    def silent_seconds(self, task: str, now: float) -> float:
        """Seconds since it was heard."""
        return now - self._contacts[task].seconds

    def step_age_seconds(self, task: str, now: float) -> float:
        """Seconds since it came to the step that it is at."""
        return now - self._contacts[task].step_seconds

    def contact(self, task: str) -> Contact:
        """How a live task was heard last."""
        return self._contacts[task]

    def of(self, task: str) -> MemberReport:
        """The newest report; an empty one if there is none yet."""
        contact = self._contacts.get(task)
        return contact.report if contact is not None else MemberReport(task, 0)


class Timers:
    """Named deadlines of rules that have no clock of their own: each begins when it is first asked for."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}

    def passed(self, name: str, now: float, seconds: float) -> bool:
        """Whether `seconds` have gone by since this name was first asked for."""
        return now - self._began.setdefault(name, now) >= seconds

    def begin(self, name: str, now: float) -> None:
        """Begin a timer, anew if it ran."""
        self._began[name] = now

    def runs(self, name: str) -> bool:
        """Whether a timer was asked for and not cleared since."""
        return name in self._began

    def clear(self, *names: str) -> None:
        """End timers."""
        for name in names:
            self._began.pop(name, None)
