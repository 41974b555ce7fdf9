"""Members that do everything but compute, and a launcher that starts them as they are wanted."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from elastic_runtime.block_state import BlockState
from elastic_runtime.checkpoint import ShardWriter, folder_of
from elastic_runtime.control.client import ControlClient, MemberLink
from elastic_runtime.control.credentials import ClientCredentials
from elastic_runtime.control.messages import JobStatus, Shard
from elastic_runtime.errors import CoordinatorUnreachable
from elastic_runtime.layout import TensorSpec, build_layout
from elastic_runtime.optimizers import SGD
from elastic_runtime.plan import Phase, Role, Timeline, View
from elastic_runtime.training import Training

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves the folder out: for simulated_world

TOKEN = "a-token-for-these-tests"  # noqa: S105 - of no job
JOB = "digits"
LAYOUT = build_layout([TensorSpec("weight", (64, 1024), "float32")], [])
PATIENCE_SECONDS = 60.0


def training(samples: int = 32 * 400, global_batch: int = 32, epochs: int = 1) -> bytes:
    return Training(optimizer=SGD(lr=0.1), samples=samples, global_batch=global_batch, epochs=epochs).to_json()


class Pretender:
    """A worker or server that does everything but compute."""

    def __init__(self, address: str, task: str, checkpoints: Path, total_steps: int, train: threading.Event) -> None:
        self.role = Role.WORKER if task.startswith("worker") else Role.SERVER
        self.task, self.checkpoints, self.total_steps, self.train = task, checkpoints, total_steps, train
        self.incarnation = abs(hash((task, threading.get_ident()))) % 2**60 + 1
        self.link = MemberLink(address, JOB, task, self.role, self.incarnation, ClientCredentials(TOKEN))
        self.news = threading.Condition()
        self.view: View | None = None
        self.held = 2**62
        self.begun = -1
        self.thread = threading.Thread(target=self.run, daemon=True)

    def start(self) -> None:
        layout = LAYOUT.to_json() if self.role is Role.WORKER else b""
        terms = training(32 * self.total_steps) if self.role is Role.WORKER else b""
        self.link.register('{"tcp": "127.0.0.1:1"}', layout, terms, deadline_seconds=PATIENCE_SECONDS)
        self.link.follow(self.on_view)
        self.thread.start()

    def on_view(self, view: View) -> None:
        assert self.view is None or view.number > self.view.number
        with self.news:
            proposal = view.proposal
            if self.role is Role.WORKER and proposal is not None and self.view is not None:
                if self.begun < proposal.clock:
                    self.held = proposal.clock
                    self.link.report(accepted=proposal.number)
                else:
                    self.link.report(refused=proposal.number)
            elif proposal is None:
                self.held = 2**62
            self.view = view
            self.news.notify_all()

    def run(self) -> None:
        if self.role is Role.WORKER:
            self.work()
        else:
            self.serve()
        self.link.report(left=True)
        self.link.flush(PATIENCE_SECONDS)
        self.link.close()

    def ends(self) -> bool:
        view = self.view
        return view is not None and (self.task in view.leaving or view.phase in {Phase.FINISHED, Phase.FAILED})

    def work(self) -> None:
        generation, step = 0, 0
        while not self.ends():
            with self.news:
                self.news.wait(0.002)
                view = self.view
                if view is None:
                    continue
                if view.initialiser == self.task:
                    self.link.report(initialised=True)
                if view.phase in {Phase.STARTING, Phase.RECOVERING} or not view.generation:
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
                halts = timeline.halts_at()
                if step >= self.total_steps:
                    self.link.report(generation=generation, step=step, finished=True)
                    continue
                self.link.report(generation=generation, step=step, ready=True, step_seconds=0.002)
                if step >= self.held or (halts is not None and step >= halts) or not self.train.is_set():
                    continue
                barrier = [c for c in view.changes if c.barrier and c.number > view.committed and c.clock <= step]
                if barrier:
                    continue
                self.begun = step
                step += 1

    def serve(self) -> None:
        shards: tuple[Shard, ...] = ()
        while not self.ends():
            with self.news:
                self.news.wait(0.002)
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

    def __init__(self, address: str, checkpoints: Path, total_steps: int) -> None:
        self.address, self.checkpoints, self.total_steps = address, checkpoints, total_steps
        self.tasks: dict[str, Pretender] = {}
        self.client = ControlClient(address, JOB, ClientCredentials(TOKEN))
        self.train = threading.Event()
        self.train.set()

    def until(self, done: Callable[[JobStatus], bool]) -> JobStatus:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                status = self.client.status()
            except CoordinatorUnreachable:
                assert time.monotonic() < deadline, "the coordinator did not come back"
                time.sleep(0.05)
                continue
            for task in status.wanted:
                if task not in self.tasks:
                    self.tasks[task] = Pretender(self.address, task, self.checkpoints, self.total_steps, self.train)
                    threading.Thread(target=self.tasks[task].start, daemon=True).start()
            if done(status):
                return status
            assert time.monotonic() < deadline, status
            time.sleep(0.01)


@pytest.fixture
def make_launcher(tmp_path: Path) -> Callable[[str, int], Launcher]:
    return lambda address, total_steps: Launcher(address, tmp_path, total_steps)
