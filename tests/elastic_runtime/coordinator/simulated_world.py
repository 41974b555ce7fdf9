"""A coordinator's state machine with simulated members: they follow the protocol, and compute nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from elastic_runtime.checkpoint.catalog import Search
from elastic_runtime.checkpoint.manifest import Manifest
from elastic_runtime.control.messages import MemberReport, RequestState, Shard, Size
from elastic_runtime.coordinator.checkpoint_store import describe
from elastic_runtime.coordinator.journal import encode, restore
from elastic_runtime.coordinator.rules.checkpointing import ManifestOrder, SearchResult
from elastic_runtime.coordinator.rules.machine import CoordinatorMachine, EventOutcome, begin
from elastic_runtime.coordinator.rules.registering import Newcomer
from elastic_runtime.coordinator.rules.settings import CoordinatorSettings
from elastic_runtime.errors import BadInput
from elastic_runtime.model.layout import Layout, TensorSpec, build_layout
from elastic_runtime.model.optimizers import SGD
from elastic_runtime.model.training import Training
from elastic_runtime.protocol.plan import JobPhase, TaskRole, Timeline, View, transfers

BLOCKS, TOTAL_STEPS, BATCH = 12, 40, 8
LAYOUT = build_layout([TensorSpec("weight", (BLOCKS * 1024,), "float32")], [], 4096).to_json().decode()
TRAINING = Training(optimizer=SGD(lr=0.1), samples=BATCH * TOTAL_STEPS, global_batch=BATCH, epochs=1).to_json().decode()
ENDED = {JobPhase.FINISHED, JobPhase.FAILED}
SETTINGS = CoordinatorSettings(
    job="simulated",
    servers=2,
    workers=2,
    checkpoint_seconds=20,
    restarts=1000,
    losses=100000,
    stage_fraction=0.1,
    stage_bytes=1,
)


def lengthen(monkeypatch: pytest.MonkeyPatch, total_steps: int) -> None:
    """Let the jobs of this test have more steps than others'."""
    longer = replace(Training.from_json(TRAINING.encode()), samples=BATCH * total_steps)
    monkeypatch.setitem(globals(), "TOTAL_STEPS", total_steps)
    monkeypatch.setitem(globals(), "TRAINING", longer.to_json().decode())


@dataclass
class Member:
    """A worker or server, as the protocol wants it to behave, without the numbers."""

    task: str
    incarnation: int
    report: MemberReport
    view: View | None = None
    begun: int = -1
    promised: int = 2**62
    entered: int = 0
    over: bool = False

    @property
    def worker(self) -> bool:
        return self.task.startswith("worker")


@dataclass
class World:
    """A machine, what it journaled, its members, and the steps that were done."""

    now: float = 0.0
    machine: CoordinatorMachine = field(init=False)
    records: list[bytes] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    members: dict[str, Member] = field(default_factory=dict)
    pushed: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    done: dict[int, int] = field(default_factory=dict)
    incarnations: int = 0
    requested: dict[str, RequestState] = field(default_factory=dict)
    slow_network: bool = False
    damaged: set[str] = field(default_factory=set)
    """Checkpoints that servers cannot read."""
    looks_sound: bool = False
    """Not to the coordinator, though."""
    dies_searching: bool = False

    settings: CoordinatorSettings = SETTINGS

    def __post_init__(self) -> None:
        self.machine = CoordinatorMachine(self.settings, self.now, begin(self.settings), lambda: 0.0)
        self.take(self.machine.on_tick(self.now))

    # ---- the coordinator's side

    def take(self, outcome: EventOutcome, journaled: bool = True, published: bool = True) -> None:
        """Journal and publish an outcome, or die before either."""
        if outcome.record and journaled:
            self.records.append(encode(outcome.record))
        if journaled and published and outcome.view is not None:
            self.publish(outcome.view)
        if not (journaled and published):
            self.restart()
            return
        for order in outcome.orders:
            if isinstance(order, ManifestOrder):
                assert {shard.name for shard in order.shards}, order
                self.take(self.machine.on_checkpoint_completed(order, "", self.now))
            elif self.dies_searching:
                self.dies_searching = False
                self.restart()
                return
            else:
                self.take(self.machine.on_checkpoint_searched(order, self.search(order.names), "", self.now))

    def search(self, names: tuple[str, ...]) -> SearchResult:
        bad = () if self.looks_sound else tuple((Path(name), "cut short") for name in names if name in self.damaged)
        sound = next((name for name in names if self.looks_sound or name not in self.damaged), None)
        layout = Layout.from_json(LAYOUT.encode())
        found = Manifest(Path(sound), int(sound.partition("-")[2]), layout, SGD(lr=0.1), ()) if sound else None
        return describe(Search(found, bad))

    def restart(self) -> None:
        state = restore(self.records) or begin(self.settings)
        before = self.views[-1].number if self.views else 0
        self.machine = CoordinatorMachine(self.settings, self.now, state, lambda: 0.0)
        outcome = self.machine.on_tick(self.now)
        assert outcome.view is None or outcome.view.number > before
        self.take(outcome)

    @property
    def generation(self) -> int:
        return self.views[-1].generation

    def publish(self, view: View) -> None:
        if self.views:
            before = self.views[-1]
            assert view.number > before.number
            assert view.generation >= before.generation
            assert view.committed >= before.committed
            if before.generation == view.generation:
                self.check_history(before, view)
        numbers = [change.number for change in view.changes]
        assert numbers == sorted(set(numbers))
        if view.proposal is not None:
            assert all(view.proposal.number > number for number in numbers)
        if view.generation and view.phase not in {JobPhase.STARTING, JobPhase.RECOVERING}:
            Timeline(replace(view, changes=(*view.changes, *([view.proposal] if view.proposal else []))))
        self.views.append(view)

    def check_history(self, before: View, view: View) -> None:
        """What was begun by the plan of one view is what the next one says too; changes are never taken back."""
        old, new = (Timeline(replace(v, substitutes={}, lost_servers=())) for v in (before, view))
        for member in self.members.values():
            if member.worker and member.entered == view.generation and member.begun >= 0 and not member.over:
                plans = old.at(member.begun), new.at(member.begun)
                assert (plans[0].owners, plans[0].workers) == (plans[1].owners, plans[1].workers), member.task
        for change in view.changes:
            if before.committed < change.number <= view.committed:
                earlier = replace(view, changes=tuple(c for c in view.changes if c.number < change.number))
                for row in transfers(change, Timeline(earlier).at(10**9)):
                    for receiver in row.coming:
                        assert receiver not in self.members or self.members[receiver].report.arrived >= change.number
        newest = [max((change.number for change in v.changes), default=0) for v in (before, view)]
        assert newest[0] <= newest[1]

    # ---- the members' side

    def start(self, task: str) -> None:
        self.incarnations += 1
        role = TaskRole.WORKER if task.startswith("worker") else TaskRole.SERVER
        models = (LAYOUT, TRAINING) if role is TaskRole.WORKER else ("", "")
        newcomer = Newcomer(task, role, self.incarnations, "{}", *models)
        refusal, outcome = self.machine.on_register(newcomer, self.now)
        self.take(outcome)
        if not refusal:
            self.members[task] = Member(task, self.incarnations, MemberReport(task, self.incarnations))

    def deliver(self, member: Member) -> None:
        """The newest view comes to a member, on its control thread."""
        view = self.views[-1]
        if member.view is not None and member.view.number >= view.number:
            return
        if member.view is None or member.view.generation != view.generation:
            member.begun = -1
        member.view, member.promised = view, 2**62
        if member.worker and view.proposal is not None and view.generation:
            at = Timeline(view).at(max(member.begun, view.start_step))
            if member.task in at.workers:
                if member.begun >= view.proposal.clock:
                    member.report = replace(member.report, refused=view.proposal.number, generation=view.generation)
                else:
                    member.promised = view.proposal.clock
                    member.report = replace(member.report, accepted=view.proposal.number)

    def act(self, member: Member) -> None:
        """A member does whatever it can do next."""
        view = member.view
        if view is None or member.over:
            return
        if member.task in view.leaving or view.phase in ENDED:
            self.leave(member)
        elif member.worker:
            self.work(member, view)
        else:
            self.serve(member, view)

    def leave(self, member: Member) -> None:
        member.over = True
        member.report = replace(member.report, left=True)

    def work(self, member: Member, view: View) -> None:
        if view.generation == 0:
            if view.initialiser == member.task:
                member.report = replace(member.report, initialised=True)
            return
        timeline = Timeline(view)
        if member.entered != view.generation:
            steps = [view.start_step, *(c.clock + i for c in view.changes for i in range(max(1, len(c.stages))))]
            named = [step for step in steps if timeline.at(step).slices_of(member.task)]
            if not named:
                member.report = replace(member.report, ready=True)
            elif self.version(view) >= named[0]:
                member.entered, member.begun = view.generation, -1
                member.report = replace(member.report, generation=view.generation, step=named[0])
            return
        step = member.report.step
        plan = timeline.at(step)
        if member.begun < step or (view.ends_at is not None and step >= view.ends_at):
            self.begin(member, view, timeline)
            return
        pushed = self.pushed.setdefault((view.generation, step), set())
        pushed |= set(plan.slices_of(member.task))
        if self.version(view) > step:
            member.report = replace(member.report, step=step + 1, step_seconds=0.05)

    def begin(self, member: Member, view: View, timeline: Timeline) -> None:
        step = member.report.step
        halts = timeline.halts_at()
        if step >= (TOTAL_STEPS if view.ends_at is None else view.ends_at):
            member.report = replace(member.report, finished=True)
            member.over = True
        elif (halts is not None and step >= halts) or not timeline.at(step).slices_of(member.task):
            self.leave(member)
        elif step < member.promised and not any(
            c.barrier and step >= c.clock and view.committed < c.number for c in view.changes
        ):
            member.begun = step

    def version(self, view: View) -> int:
        """Steps that all servers have applied: all slices of each were pushed."""
        timeline = Timeline(self.views[-1] if self.views[-1].generation == view.generation else view)
        step = self.done.setdefault(view.generation, view.start_step)
        while len(self.pushed.get((view.generation, step), ())) == len(timeline.at(step).workers) > 0:
            step += 1
        self.done[view.generation] = step
        return step

    def serve(self, member: Member, view: View) -> None:
        if not view.generation:
            return
        damage = f"{view.start_checkpoint} is cut short" if view.start_checkpoint in self.damaged else ""
        report = replace(member.report, generation=view.generation, ready=not damage, damage=damage)
        if damage:
            member.report = report
            return
        timeline = Timeline(view)
        version = self.version(view)
        for change in view.changes:
            last = change.clock + max(1, len(change.stages)) - 1
            if version >= last and not self.slow_network:
                report = replace(report, arrived=max(report.arrived, change.number))
            blocks = timeline.at(change.clock).blocks_of(member.task)
            if change.checkpoint and version >= change.clock and blocks:
                shard = Shard(member.task, change.clock, 1, "0" * 64, change.number)
                if shard not in report.shards:
                    report = replace(report, shards=(*report.shards, shard)[-4:])
        member.report = report

    def send(self, member: Member) -> None:
        """A member's report comes in."""
        known, outcome = self.machine.on_report(member.report, self.now)
        self.take(outcome)
        if not known or (member.over and member.report.left):
            self.members.pop(member.task, None)

    def kill(self, member: Member, reported: bool) -> None:
        del self.members[member.task]
        if reported:
            self.take(self.machine.on_task_ended(member.task, -9, "", self.now))

    def request(self, request: RequestState) -> None:
        try:
            row, outcome = self.machine.on_request(request, self.now)
        except BadInput:
            return
        self.requested[request.request_id] = row
        self.take(outcome)

    def pass_time(self, seconds: float, missed_seconds: float = 0.0) -> None:
        self.now += seconds
        self.take(self.machine.on_tick(self.now, missed_seconds))

    def resize(self, request_id: str, servers: int, workers: int, **more: object) -> RequestState:
        """Ask for a size; raises what the machine raises."""
        request = RequestState(request_id, "resize", target=Size(servers, workers))
        row, outcome = self.machine.on_request(replace(request, **more), self.now)  # type: ignore[arg-type]
        self.take(outcome)
        return row

    def rounds(self, done: Callable[[View], bool], most: int = 300) -> View:
        """Go on until a view is so."""
        for _ in range(most):
            if done(self.views[-1]):
                return self.views[-1]
            self.round()
        raise AssertionError(f"{self.views[-1]}\n{self.status()}")

    def ended(self, request_id: str) -> RequestState:
        """Go on until a request has ended."""
        for _ in range(2000):
            row = next(row for row in self.status().requests if row.request_id == request_id)
            if row.ended:
                return row
            self.round()
        raise AssertionError(self.status())

    def round(self, seconds: float = 0.2) -> None:
        """Everybody gets a turn."""
        for task in self.views[-1].wanted:
            self.start(task)
        for member in list(self.members.values()):
            self.deliver(member)
            self.act(member)
            if self.members.get(member.task) is member:
                self.send(member)
        self.pass_time(seconds)

    def training(self) -> World:
        """Go on until the job has done some steps."""
        self.rounds(lambda view: view.phase is JobPhase.RUNNING and self.status().step > 2)
        return self

    def until(self, *phases: JobPhase, rounds: int = 3000) -> None:
        for _ in range(rounds):
            if self.views[-1].phase in phases:
                return
            self.round()
        raise AssertionError(f"{self.views[-1]}\n{self.machine.status(self.now)}")

    def status(self):
        return self.machine.status(self.now)
