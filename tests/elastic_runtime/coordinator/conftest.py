"""Members that do everything but compute, and a launcher that starts them as they are wanted."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch

from elastic_runtime.checkpoint.catalog import folder_of
from elastic_runtime.checkpoint.writer import ShardWriter
from elastic_runtime.control.client import ControlClient
from elastic_runtime.control.credentials import ClientCredentials
from elastic_runtime.control.member_link import MemberLink
from elastic_runtime.control.messages import JobStatus, Shard
from elastic_runtime.errors import CoordinatorUnreachable, NotNeeded
from elastic_runtime.model.block_state import BlockState
from elastic_runtime.model.layout import TensorSpec, build_layout
from elastic_runtime.model.optimizers import SGD
from elastic_runtime.model.training import Training
from elastic_runtime.protocol.plan import JobPhase, TaskRole, Timeline, View

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves the folder out: for simulated_world

TOKEN = "a-token-for-these-tests"  # noqa: S105 - of no job
JOB = "digits"
LAYOUT = build_layout([TensorSpec("weight", (64, 1024), "float32")], [])
PATIENCE_SECONDS = 60.0
TURN_SECONDS = 0.002
TOTAL_STEPS = 50_000
"""At a step a turn, longer than anything here is waited for: a test that is slow finds its job still training."""


def training() -> bytes:
    return Training(optimizer=SGD(lr=0.1), samples=32 * TOTAL_STEPS, global_batch=32, epochs=1).to_json()


class Pretender:
    """A worker or server that does everything but compute.

    Args:
        address: of the coordinator.
        task: its name.
        checkpoints: folder of the job's checkpoints.
        hurry: once set, a worker does all steps of a turn that it may.
    """

    def __init__(self, address: str, task: str, checkpoints: Path, hurry: threading.Event) -> None:
        self.role = TaskRole.WORKER if task.startswith("worker") else TaskRole.SERVER
        self.task, self.checkpoints, self.hurry = task, checkpoints, hurry
        self.stopped = threading.Event()
        self.errors: list[Exception] = []
        self.incarnation = abs(hash((task, threading.get_ident()))) % 2**60 + 1
        self.link = MemberLink(address, JOB, task, self.role, self.incarnation, ClientCredentials(TOKEN))
        self.news = threading.Condition()
        self.view: View | None = None
        self.held = 2**62
        self.begun = -1
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        """Its whole life; what goes wrong before it is stopped is the test's failure."""
        try:
            layout = LAYOUT.to_json() if self.role is TaskRole.WORKER else b""
            terms = training() if self.role is TaskRole.WORKER else b""
            self.link.register('{"tcp": "127.0.0.1:1"}', layout, terms, deadline_seconds=PATIENCE_SECONDS)
            self.link.follow(self.on_view)
            if self.role is TaskRole.WORKER:
                self.work()
            else:
                self.serve()
            self.leave()
        except NotNeeded:
            pass  # the job ended before this task came to it
        except Exception as error:
            self.note(error)
        self.link.close()

    def note(self, error: Exception) -> None:
        if not self.stopped.is_set():
            self.errors.append(error)

    def on_view(self, view: View) -> None:
        try:
            self.take(view)
        except Exception as error:
            self.note(error)

    def take(self, view: View) -> None:
        assert self.view is None or view.number > self.view.number
        with self.news:
            proposal = view.proposal
            if self.role is TaskRole.WORKER and proposal is not None and self.view is not None:
                if self.begun < proposal.clock:
                    self.held = proposal.clock
                    self.link.report(accepted=proposal.number)
                else:
                    self.link.report(refused=proposal.number)
            elif proposal is None:
                self.held = 2**62
            self.view = view
            self.news.notify_all()

    def leave(self) -> None:
        """Its coordinator may be away, and come back."""
        self.link.report(left=True)
        while not self.stopped.is_set():
            try:
                self.link.flush(1.0)
            except CoordinatorUnreachable:
                continue
            return

    def ends(self) -> bool:
        view = self.view
        reported = view is not None and (
            self.task in view.leaving or view.phase in {JobPhase.FINISHED, JobPhase.FAILED}
        )
        return reported or self.stopped.is_set() or bool(self.errors)

    def work(self) -> None:
        generation, step = 0, 0
        while not self.ends():
            with self.news:
                self.news.wait(TURN_SECONDS)
                view = self.view
                if view is None:
                    continue
                if view.initialiser == self.task:
                    self.link.report(initialised=True)
                if view.phase in {JobPhase.STARTING, JobPhase.RECOVERING} or not view.generation:
                    continue
                timeline = Timeline(view)
                if view.generation != generation:
                    generation, step, self.begun = view.generation, view.start_step, -1
                if self.task not in timeline.at(step).workers:
                    later = [c.clock for c in view.changes if self.task in timeline.at(c.clock).workers]
                    self.link.report(generation=generation, ready=True)
                    if not later or step >= later[0]:
                        continue
                    step = later[0]
                if step >= TOTAL_STEPS:
                    self.link.report(generation=generation, step=step, finished=True)
                    continue
                self.link.report(generation=generation, step=step, ready=True, step_seconds=TURN_SECONDS)
                if step < (bound := self.bound(view, timeline, step)):
                    step = bound if self.hurry.is_set() else step + 1
                    self.begun = step - 1

    def bound(self, view: View, timeline: Timeline, step: int) -> int:
        """The first step from `step` on that it may not begin in this turn."""
        halts = timeline.halts_at()
        stops = [TOTAL_STEPS, self.held, *([halts] if halts is not None else [])]
        for change in view.changes:
            if change.barrier and change.number > view.committed:
                stops.append(change.clock)
            # The plan may be another one from each stage on.
            stops += [at for at in range(change.clock, change.clock + len(change.stages) + 1) if at > step]
        return min(stops)

    def serve(self) -> None:
        shards: tuple[Shard, ...] = ()
        while not self.ends():
            with self.news:
                self.news.wait(TURN_SECONDS)
                view = self.view
            if view is None or not view.generation:
                continue
            newest = view.changes[-1].number if view.changes else 0
            for change in view.changes:
                new = change.checkpoint and all(shard.change != change.number for shard in shards)
                blocks = Timeline(view).at(change.clock).blocks_of(self.task)
                if new and blocks:
                    shards = (*shards, self.write(change.number, change.clock, blocks))
            self.link.report(generation=view.generation, ready=True, arrived=newest, shards=shards[-3:])

    def write(self, change: int, step: int, blocks: Sequence[int]) -> Shard:
        writer = ShardWriter(folder_of(self.checkpoints, step), self.task, LAYOUT, SGD(lr=0.1), blocks)
        for block in blocks:
            place = LAYOUT.blocks[block]
            writer.add(BlockState(block, step, torch.zeros(place.stop - place.start), {}))
        record = writer.finish()
        return Shard(record.name, step, record.size_bytes, record.sha256, change)


class Launcher:
    """Starts a pretender for each task that is wanted."""

    total_steps = TOTAL_STEPS

    def __init__(self, address: str, checkpoints: Path) -> None:
        self.address, self.checkpoints = address, checkpoints
        self.tasks: dict[str, Pretender] = {}
        self.client = ControlClient(address, JOB, ClientCredentials(TOKEN))
        self.hurry = threading.Event()

    def until(self, done: Callable[[JobStatus], bool]) -> JobStatus:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            self.check()
            try:
                status = self.client.status()
            except CoordinatorUnreachable:
                assert time.monotonic() < deadline, "the coordinator did not come back"
                time.sleep(0.05)
                continue
            for task in status.wanted:
                if task not in self.tasks:
                    self.tasks[task] = Pretender(self.address, task, self.checkpoints, self.hurry)
                    self.tasks[task].thread.start()
            if done(status):
                return status
            assert time.monotonic() < deadline, status
            time.sleep(0.01)

    def check(self) -> None:
        for task in self.tasks.values():
            assert not task.errors, (task.task, task.errors)

    def close(self) -> None:
        """End all pretenders; nothing of them is left to the next test."""
        self.check()
        for task in self.tasks.values():
            task.stopped.set()
        for task in self.tasks.values():
            task.link.close()
            task.thread.join(PATIENCE_SECONDS)
            assert not task.thread.is_alive(), task.task
        self.client.close()


@pytest.fixture
def make_launcher(tmp_path: Path) -> Iterator[Callable[[str], Launcher]]:
    made: list[Launcher] = []

    def make(address: str) -> Launcher:
        made.append(Launcher(address, tmp_path))
        return made[-1]

    yield make
    for launcher in made:
        launcher.close()
