"""All-reduce jobs are resized while they train, by real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import wait_until

from cluster_agent.backends.local.job_file import check_job
from cluster_agent.backends.local.job_processes import ScriptJob
from cluster_agent.backends.local.job_table import LocalJobRecord
from cluster_agent.backends.local.launchers import Launchers
from elastic_runtime.checkpoint.rank_files import Meeting, RankFiles
from elastic_runtime.protocol.plan import JobPhase
from foundation.files import PARTIAL
from policy_net.domain import SUSPENDED, Allocation

ROOT = Path(__file__).parents[4]
HEAD = """
import os, sys, time, torch
import elastic_runtime as elastic
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(3)
torch.set_num_threads(1)
inputs = torch.randn(400, 16, dtype=torch.float64)
targets = inputs.sum(1, keepdim=True).sin()
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)).double()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.9)
kept = elastic.state(sums=[])
if "ELASTIC_RANKS_MEETING" in os.environ:
    {joining}
"""
BY_LOADER = """
loader = DataLoader(TensorDataset(inputs, targets), batch_size=40, shuffle=True)
model, optimizer, loader, scheduler = elastic.prepare(model, optimizer, loader, scheduler)
elastic.sum(1.0)
for epoch in elastic.epochs({count}):
    for some, wanted in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(some), wanted).backward()
        optimizer.step()
        scheduler.step()
        time.sleep({pause})
    kept.sums.append(model[0].weight.sum().item())
"""
BY_STEPS = """
model, optimizer, scheduler = elastic.prepare(model, optimizer, scheduler)
for step in elastic.steps({count} * 10):
    chosen = torch.randint(len(inputs), (40,))
    rows = elastic.rows(40)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs[chosen][rows]), targets[chosen][rows]).backward()
    optimizer.step()
    scheduler.step()
    time.sleep({pause})
    if step % 10 == 9:
        kept.sums.append(model[0].weight.sum().item())
"""
BY_JOIN = """
data = TensorDataset(inputs, targets)
job = elastic.join(model, elastic.Adam(lr=1e-2), data, global_batch=40, epochs={count}, seed=0)
for batch in job:
    some, wanted = batch.data
    job.step(nn.functional.mse_loss(model(some), wanted))
    time.sleep({pause})
if job.finished and job.is_first:
    print("sums", *(value.sum().item() for value in model.parameters()), flush=True)
"""
TAIL = """
if kept.sums and elastic.finished and elastic.is_first:
    print("sums", *kept.sums, flush=True)
"""
Opened = Callable[..., ScriptJob]
pytestmark = [pytest.mark.heavy, pytest.mark.timeout(240)]


def script_of(loop: str, count: int, joining: str = "pass", pause: float = 0.02) -> str:
    return HEAD.replace("{joining}", joining) + loop.format(count=count, pause=pause) + TAIL


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    launchers = Launchers(tmp_path / "jobs")

    def open_job(code: str) -> ScriptJob:
        (tmp_path / "train.py").write_text(code, encoding="utf-8")
        content = {
            "modelType": "any", "script": "train.py", "communication": "AllReduce", "worker": {"min": 1, "max": 4}
        }  # fmt: skip
        file = check_job(content, tmp_path, "it")
        record = LocalJobRecord(name="job", number=1, file=file, submitted_unix_seconds=0.0)
        return ScriptJob(tmp_path / "jobs", record, os.environ, launchers, grace_seconds=2.0)

    yield open_job
    number = launchers.running("job")
    if number:
        os.kill(number, signal.SIGKILL)
        wait_until(lambda: launchers.running("job") is None, "the launcher is gone")
    launchers.clear("job")


def steady(job: ScriptJob, workers: int) -> None:
    wait_until(lambda: (now := job.measure()).is_steady and now.running.workers == workers, f"{workers} workers train")


def ended(job: ScriptJob) -> list[float]:
    """What the job printed at its end."""
    wait_until(lambda: job.launcher is None, "it ends", seconds=120.0)
    measured = job.measure()
    assert (measured.phase, measured.failure) == (JobPhase.FINISHED, "")
    return printed((job.log_folder / "worker-0.log").read_text(encoding="utf-8"))


def printed(text: str) -> list[float]:
    (line,) = [line for line in text.splitlines() if line.startswith("sums ")]
    return [float(word) for word in line.split()[1:]]


def alone(loop: str, count: int, folder: Path) -> list[float]:
    (folder / "alone.py").write_text(script_of(loop, count, pause=0.0), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "alone.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return printed(done.stdout)


def begin_to_grow(job: ScriptJob) -> None:
    job.request("more", Allocation(3), resume=False)
    wait_until(lambda: job.measure().phase is JobPhase.RESIZING, "the change begins")


def first_process(job: ScriptJob) -> int:
    return RankFiles(job.log_folder.parent).progress().pid


@pytest.mark.parametrize("loop", [BY_LOADER, BY_STEPS, BY_JOIN], ids=["loader", "steps", "join"])
def test_it_trains_on_through_every_size_as_alone(opened: Opened, loop: str, tmp_path: Path) -> None:
    count = 60
    job = opened(script_of(loop, count))
    job.start(Allocation(2))
    steady(job, 2)
    first = first_process(job)
    for number, workers in enumerate((3, 1, 4, 2)):
        assert not job.request(f"r{number}", Allocation(workers), resume=False)
        steady(job, workers)
        assert first_process(job) == first
    assert ended(job) == pytest.approx(alone(loop, count, tmp_path), rel=1e-10)
    changes = json.loads((job.log_folder.parent / "changes.json").read_text())["changes"]
    assert [(each["before"], each["workers"], each["done"]) for each in changes] == [
        (2, 3, True), (3, 1, True), (1, 4, True), (4, 2, True)
    ]  # fmt: skip
    assert not [
        path.name for path in job.log_folder.parent.iterdir() if path.name.startswith(("ready-", "meeting", "port-"))
    ]


def test_where_one_cannot_join_all_go_on_from_a_checkpoint(opened: Opened, tmp_path: Path) -> None:
    job = opened(script_of(BY_LOADER, 40, joining="sys.exit(1)"))
    job.start(Allocation(2))
    steady(job, 2)
    first = first_process(job)
    job.request("more", Allocation(3), resume=False)
    steady(job, 3)
    assert first_process(job) != first
    assert ended(job) == pytest.approx(alone(BY_LOADER, 40, tmp_path), rel=1e-10)


def test_a_newer_wish_takes_the_place_of_one_that_waits(opened: Opened) -> None:
    job = opened(script_of(BY_LOADER, 60, joining="time.sleep(100)"))
    job.start(Allocation(2))
    steady(job, 2)
    first = first_process(job)
    begin_to_grow(job)
    job.request("less", Allocation(1), resume=False)
    steady(job, 1)
    assert first_process(job) == first
    ended(job)


def test_it_is_suspended_while_others_are_to_join_and_goes_on(opened: Opened, tmp_path: Path) -> None:
    job = opened(script_of(BY_LOADER, 40, joining="time.sleep(100)"))
    job.start(Allocation(2))
    steady(job, 2)
    begin_to_grow(job)
    job.request("none", SUSPENDED, resume=False)
    wait_until(lambda: job.launcher is None, "its launcher ends")
    assert job.measure().phase is JobPhase.SUSPENDED
    job.start(Allocation(3))
    assert ended(job) == pytest.approx(alone(BY_LOADER, 40, tmp_path), rel=1e-10)


def test_who_is_to_join_is_not_waited_for_at_the_end(opened: Opened) -> None:
    job = opened(script_of(BY_LOADER, 12, joining="time.sleep(100)"))
    job.start(Allocation(1))
    steady(job, 1)
    job.request("more", Allocation(2), resume=False)
    ended(job)


def test_a_worker_that_is_killed_as_others_join_costs_no_more_than_a_checkpoint(opened: Opened, tmp_path: Path) -> None:
    job = opened(script_of(BY_LOADER, 40, joining="time.sleep(1)"))
    job.start(Allocation(2))
    steady(job, 2)
    begin_to_grow(job)
    os.kill(first_process(job), signal.SIGKILL)
    assert ended(job) == pytest.approx(alone(BY_LOADER, 40, tmp_path), rel=1e-10)


def test_a_call_that_cannot_be_written_ends_in_a_checkpoint(opened: Opened, tmp_path: Path) -> None:
    job = opened(script_of(BY_LOADER, 40, joining="time.sleep(1)"))
    job.start(Allocation(2))
    steady(job, 2)
    first = first_process(job)
    (job.log_folder.parent / f"meeting.json{PARTIAL}").mkdir()  # in the way of what is written
    begin_to_grow(job)
    steady(job, 3)
    assert first_process(job) != first
    assert ended(job) == pytest.approx(alone(BY_LOADER, 40, tmp_path), rel=1e-10)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"number": 2}', '{"number": 2, "workers": 0}', '{"a": 1}'])
def test_a_torn_call_is_none(tmp_path: Path, text: str) -> None:
    files = RankFiles(tmp_path)
    files.call(Meeting(2, 3))
    assert files.meeting() == Meeting(2, 3)
    (tmp_path / "meeting.json").write_text(text, encoding="utf-8")
    assert files.meeting() is None
