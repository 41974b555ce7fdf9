"""A job over real gRPC: members register, train as if, are resized, and end."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic_runtime.control.client import ControlClient, MemberLink
from elastic_runtime.control.credentials import ClientCredentials, ServerCredentials
from elastic_runtime.control.messages import JobStatus, RequestOutcome, ResizeMode, Shard, Size
from elastic_runtime.coordinator.depot import CheckpointDepot
from elastic_runtime.coordinator.machine import Machine
from elastic_runtime.coordinator.memory_records import MemoryRecords
from elastic_runtime.coordinator.runner import Runner
from elastic_runtime.coordinator.service import start_server
from elastic_runtime.coordinator.settings import CoordinatorSettings
from elastic_runtime.errors import BadInput, CoordinatorUnreachable
from elastic_runtime.layout import TensorSpec, build_layout
from elastic_runtime.optimizers import SGD
from elastic_runtime.plan import Phase, Role, Timeline, View
from elastic_runtime.training import Training

TOKEN = "a-token-for-these-tests"  # noqa: S105 - of no job
JOB = "digits"
LAYOUT = build_layout([TensorSpec("weight", (64, 1024), "float32")], []).to_json()
PATIENCE_SECONDS = 20.0


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
        layout = LAYOUT if self.role is Role.WORKER else b""
        terms = training(32 * self.total_steps) if self.role is Role.WORKER else b""
        self.link.register('{"tcp": "127.0.0.1:1"}', layout, terms, deadline_seconds=PATIENCE_SECONDS)
        self.link.follow(self.on_view)
        self.thread.start()

    def on_view(self, view: View) -> None:
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
                new = change.checkpoint and all(shard.step != change.clock for shard in shards)
                if new and self.task in Timeline(view).at(change.clock).owners:
                    shards = (*shards, self.write(change.clock))
            self.link.report(generation=view.generation, ready=True, arrived=newest, shards=shards[-3:])

    def write(self, step: int) -> Shard:
        folder = self.checkpoints / f"step-{step:010d}"
        folder.mkdir(exist_ok=True)
        (folder / self.task).write_bytes(b"blocks")
        return Shard(self.task, step, 6, hashlib.sha256(b"blocks").hexdigest())


class Launcher:
    """Starts a pretender for each task that is wanted."""

    def __init__(self, address: str, checkpoints: Path, total_steps: int) -> None:
        self.address, self.checkpoints, self.total_steps = address, checkpoints, total_steps
        self.tasks: dict[str, Pretender] = {}
        self.client = ControlClient(address, JOB, ClientCredentials(TOKEN))
        self.train = threading.Event()
        self.train.set()

    def until(self, done: object, **wanted: object) -> JobStatus:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            status = self.client.status()
            for task in status.wanted:
                if task not in self.tasks:
                    self.tasks[task] = Pretender(self.address, task, self.checkpoints, self.total_steps, self.train)
                    threading.Thread(target=self.tasks[task].start, daemon=True).start()
            if done(status):  # type: ignore[operator]
                return status
            assert time.monotonic() < deadline, status
            time.sleep(0.01)


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    settings = CoordinatorSettings(job=JOB, servers=1, workers=2, checkpoint_seconds=0.2)
    machine = Machine(settings, time.monotonic(), None, time.time)
    runner = Runner(machine, MemoryRecords(), CheckpointDepot(tmp_path), time.monotonic)
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.02):
            runner.tick()

    ticker = threading.Thread(target=tick)
    ticker.start()
    yield runner
    stop.set()
    ticker.join()
    runner.close()


@pytest.fixture
def address(runner: Runner) -> Iterator[str]:
    server, port = start_server(runner, JOB, "127.0.0.1:0", ServerCredentials(TOKEN), 0.2)
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def outcome(status: JobStatus, request_id: str) -> RequestOutcome | None:
    return next((row.state for row in status.requests if row.request_id == request_id), None)


def test_a_job_starts_is_resized_while_it_trains_and_finishes(address: str, tmp_path: Path) -> None:
    launcher = Launcher(address, tmp_path, total_steps=1500)
    launcher.until(lambda status: status.phase is Phase.RUNNING and status.step > 10)
    for request_id, size, mode in (
        ("grow", Size(3, 3), ResizeMode.ROLLING),
        ("shrink", Size(2, 1), ResizeMode.STOP_THE_WORLD),
    ):
        launcher.client.resize(request_id, size, (), mode)
        launcher.client.resize(request_id, size, (), mode)
        status = launcher.until(lambda status, r=request_id: outcome(status, r) is RequestOutcome.DONE)
        assert status.size == size
    status = launcher.until(lambda status: status.phase is Phase.FINISHED)
    assert (status.step, status.durable_step, status.epoch) == (1500, 1500, 1.0)
    assert [row.request_id for row in status.requests] == ["grow", "shrink"]
    launcher.client.close()


def test_a_wrong_token_job_or_address_is_said_in_one_line(address: str) -> None:
    with (
        ControlClient(address, JOB, ClientCredentials("another-token-entirely")) as client,
        pytest.raises(BadInput, match="wrong token for job digits"),
    ):
        client.status()
    with (
        ControlClient(address, "other", ClientCredentials(TOKEN)) as client,
        pytest.raises(BadInput, match="coordinator of job digits"),
    ):
        client.status()
    with (
        ControlClient("127.0.0.1:9", JOB, ClientCredentials(TOKEN), 0.3) as client,
        pytest.raises(CoordinatorUnreachable, match=r"127\.0\.0\.1:9"),
    ):
        client.status()
