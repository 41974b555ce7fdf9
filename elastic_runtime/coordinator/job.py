"""One job as its coordinator sees it now: the remembered state, the newest reports, and what both mean together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from elastic_runtime.control.messages import MemberReport, Size
from elastic_runtime.coordinator.job_model import JobModel, read_model
from elastic_runtime.coordinator.orders import Orders
from elastic_runtime.coordinator.reports import Reports
from elastic_runtime.coordinator.resize_times import ResizeTimes
from elastic_runtime.coordinator.settings import CoordinatorSettings
from elastic_runtime.coordinator.state import Course, Generation, State, Task, TaskState
from elastic_runtime.coordinator.timers import Timers
from elastic_runtime.protocol.plan import Change, Phase, Plan, Role, Timeline, View, without_lost

TRAINING = {Phase.RUNNING, Phase.RESIZING, Phase.SUSPENDING}
"""Phases with a plan that holds."""
GATHERING = {Phase.STARTING, Phase.RECOVERING}
ENDED = {Phase.FINISHED, Phase.FAILED}


class Job:
    """State, reports and timers of one job, with the questions that all parts of the machine ask.

    Args:
        settings: of the job.
        state: what is remembered.
        unix_clock: the time of day in seconds, for people to read.
    """

    def __init__(self, settings: CoordinatorSettings, state: State, unix_clock: Callable[[], float]) -> None:
        self.settings = settings
        self.state = state
        self.reports = Reports()
        self.timers = Timers()
        self.orders = Orders()
        self.unix_clock = unix_clock
        self.margin_factor = 1
        self._planned: tuple[Generation, dict[int, tuple[Plan, Plan]]] = (state.generation, {})
        self.released: set[str] = set()
        self.moved_before = 0
        self.stalls: dict[str, float] = {}
        self.times: ResizeTimes | None = None
        self.stalled_before: dict[str, float] = {}
        self.waited: dict[str, float] = {}
        self.halt_tries = 0
        self.searching = 0
        self.written_without: set[str] = set()
        self.checkpointed_seconds: float | None = None

    @property
    def model(self) -> JobModel | None:
        """What is trained; None until the first worker came."""
        model = self.state.model
        return read_model(model.layout_json, model.training_json) if model.training_json else None

    @property
    def training(self) -> bool:
        """Whether a plan holds, and steps are done by it."""
        return self.state.course.phase in TRAINING

    def task(self, name: str) -> Task | None:
        """A task by its name."""
        return self.state.roster.tasks.get(name)

    def tasks(self, role: Role | None = None, *states: TaskState) -> list[Task]:
        """Tasks of a role (None: both) in certain states (none: all), in the order in which they were wanted."""
        found = [
            task
            for task in self.state.roster.tasks.values()
            if (role is None or task.role is role) and (not states or task.state in states)
        ]
        return sorted(found, key=lambda task: task.number)

    def live(self, role: Role) -> list[str]:
        """Names of the live tasks that were not told to leave."""
        return [task.name for task in self.tasks(role, TaskState.LIVE)]

    def alive(self, name: str) -> bool:
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

    def course(self, **changes: object) -> None:
        """Change the course."""
        course: Course = replace(self.state.course, **changes)  # type: ignore[arg-type]  # names are Course's
        if course != self.state.course:
            self.state.course = course

    def generation(self, **changes: object) -> None:
        """Change the generation."""
        generation: Generation = replace(self.state.generation, **changes)  # type: ignore[arg-type]  # likewise
        if generation != self.state.generation:
            self.state.generation = generation

    def report(self, name: str) -> MemberReport:
        """What a task reported of this generation; an empty report if it has not come to it yet."""
        report = self.reports.of(name)
        if report.generation != self.state.generation.number:
            return MemberReport(report.task, report.incarnation)
        return report

    def heard(self, name: str) -> bool:
        """Whether a task has reported from this generation, to this coordinator."""
        return self.report(name).generation > 0 and self.reports.heard(name).reported

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
        """Asked several times for every report, and changed a few times a minute: kept."""
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

    def moving(self) -> Change | None:
        """The confirmed change that is not over yet."""
        generation = self.state.generation
        return next((change for change in generation.changes if change.number == generation.moving), None)

    def owning(self) -> set[str]:
        """Servers that hold blocks, or that a change takes blocks from."""
        servers = set(self.plan().servers)
        moving = self.moving()
        return servers | set(self.plan_before(moving).servers) if moving is not None else servers

    def working(self) -> list[str]:
        """The live workers of the newest plan, each once."""
        return [name for name in dict.fromkeys(self.plan().workers) if self.alive(name)]

    def halt(self) -> Change | None:
        """The confirmed change that stops the job."""
        return next((change for change in self.state.generation.changes if change.halt), None)

    def needs(self, name: str) -> bool:
        """Whether a worker of the plan still has steps to compute, as far as is known."""
        if self.state.generation.ended:
            return False
        step, moving, halt = self.report(name).step, self.moving(), self.halt()
        if halt is not None and step >= halt.clock:
            return False
        if name in self.plan().workers:
            return True
        return moving is not None and name in self.plan_before(moving).workers and step < moving.clock

    def newest_step(self, names: Iterable[str]) -> int:
        """The highest step that any of these has reported."""
        return max((self.report(name).step for name in names), default=self.state.generation.start_step)

    def expected_step(self, names: Iterable[str], now: float) -> int:
        """The step that the fastest of these will have come to, as reports are some steps old."""
        steps = [self.state.generation.start_step]
        for name in names:
            report = self.report(name)
            age_seconds = min(self.reports.silent_seconds(name, now), self.settings.report_every_seconds)
            steps.append(report.step + (int(age_seconds / report.step_seconds) if report.step_seconds > 0 else 0))
        return max(steps)

    def lowest_step(self, names: Iterable[str]) -> int:
        """The lowest step that any of these has reported; one that has not come to its first counts as the start."""
        return min((self.report(name).step for name in names), default=self.state.generation.start_step)

    def size(self) -> Size:
        """What the newest plan consists of."""
        if not self.training:
            return Size(0, 0)
        plan = self.plan()
        return Size(len(plan.servers), len(self.working()))


_END = 2**62


def _view(generation: Generation, changes: tuple[Change, ...]) -> View:
    return View(
        number=0,
        generation=generation.number,
        phase=Phase.RUNNING,
        start_step=generation.start_step,
        start_checkpoint="",
        start_plan=generation.start_plan,
        changes=changes,
    )
