"""A job over real gRPC: members register, train as if, are resized, and end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from memory_records import MemoryRecords

from elastic_runtime.control.client import ControlClient
from elastic_runtime.control.credentials import ClientCredentials, ServerCredentials
from elastic_runtime.control.messages import JobStatus, RequestOutcome, RequestState, ResizeMode, Size
from elastic_runtime.coordinator.checkpoint_store import CheckpointStore
from elastic_runtime.coordinator.journal import Journal
from elastic_runtime.coordinator.rules.machine import CoordinatorMachine, begin
from elastic_runtime.coordinator.rules.settings import CoordinatorSettings
from elastic_runtime.coordinator.runner import CoordinatorRunner
from elastic_runtime.coordinator.service import start_server
from elastic_runtime.errors import BadInput, CoordinatorUnreachable
from elastic_runtime.protocol.plan import JobPhase
from foundation.clocks import AwakeClock

TOKEN = "a-token-for-these-tests"  # noqa: S105 - of no job
JOB = "digits"


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[CoordinatorRunner]:
    settings = CoordinatorSettings(
        # A machine that is busy for a while is no dead member here.
        job=JOB,
        servers=1,
        workers=2,
        checkpoint_seconds=0.2,
        lost_seconds=60.0,
        silent_seconds=60.0,
        vote_seconds=60.0,
    )
    machine = CoordinatorMachine(settings, time.monotonic(), begin(settings), time.time)
    runner = CoordinatorRunner(machine, MemoryRecords(), CheckpointStore(tmp_path, 3), AwakeClock(60.0))
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.02):
            runner.on_tick()

    ticker = threading.Thread(target=tick)
    ticker.start()
    yield runner
    stop.set()
    ticker.join()
    runner.close()


@pytest.fixture
def address(runner: CoordinatorRunner) -> Iterator[str]:
    server, port = start_server(runner, JOB, "127.0.0.1:0", ServerCredentials(TOKEN), 0.2)
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def outcome(status: JobStatus, request_id: str) -> RequestOutcome | None:
    return next((row.state for row in status.requests if row.request_id == request_id), None)


def test_a_job_starts_is_resized_while_it_trains_and_finishes(
    address: str, make_launcher: Callable[[str], Any]
) -> None:
    launcher = make_launcher(address)
    launcher.until(lambda status: status.phase is JobPhase.RUNNING and status.step > 10)
    for request_id, size, mode in (
        ("grow", Size(3, 3), ResizeMode.ROLLING),
        ("shrink", Size(2, 1), ResizeMode.STOP_THE_WORLD),
    ):
        launcher.client.resize(request_id, size, (), mode)
        launcher.client.resize(request_id, size, (), mode)
        status = launcher.until(lambda status, r=request_id: outcome(status, r) is RequestOutcome.DONE)
        assert status.size == size
    launcher.hurry.set()
    status = launcher.until(lambda status: status.phase is JobPhase.FINISHED)
    assert (status.step, status.durable_step, status.epoch) == (launcher.total_steps, launcher.total_steps, 1.0)
    assert [row.request_id for row in status.requests] == ["grow", "shrink"]


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


def test_who_was_followed_by_another_scheduler_is_refused_whatever_it_asks_for(
    address: str, runner: CoordinatorRunner
) -> None:
    credentials = ClientCredentials(TOKEN)
    epochs = {"old": 7, "new": 9}
    with (
        ControlClient(address, JOB, credentials, epoch=lambda: epochs["old"]) as old,
        ControlClient(address, JOB, credentials, epoch=lambda: epochs["new"]) as new,
        ControlClient(address, JOB, credentials) as person,
    ):
        assert old.resize("first", Size(1, 3))[0] is RequestOutcome.QUEUED
        assert new.resize("second", Size(1, 2))[0] is RequestOutcome.QUEUED
        before = runner.status()
        for late in (
            lambda: old.resize("third", Size(1, 4)),
            lambda: old.suspend("fourth"),
            lambda: old.resume("fifth", Size(1, 1)),
            lambda: old.task_ended("worker-0", -9),
        ):
            with pytest.raises(BadInput, match="lease epoch 7 is over: job digits was told of 9"):
                late()
        assert runner.status().requests == before.requests
        epochs["old"] = 1 << 60
        with pytest.raises(BadInput, match="is no lease's"):
            old.resize("third", Size(1, 4))
        epochs["old"] = 10
        assert old.resize("third", Size(1, 4))[0] is RequestOutcome.QUEUED
        assert person.resize("by hand", Size(1, 1))[0] is RequestOutcome.QUEUED


def test_the_highest_epoch_outlives_the_coordinator(tmp_path: Path) -> None:
    settings = CoordinatorSettings(job=JOB, servers=1, workers=1)
    records = Journal(tmp_path, JOB)
    machine = CoordinatorMachine(settings, 0.0, begin(settings), time.time)
    runner = CoordinatorRunner(machine, records, CheckpointStore(tmp_path, 3), AwakeClock(60.0))
    runner.on_request(RequestState("first", "resize", target=Size(1, 2)), epoch=9)
    runner.close()
    records.close()
    again = Journal(tmp_path, JOB)
    assert again.state is not None
    machine = CoordinatorMachine(settings, 0.0, again.state, time.time)
    with pytest.raises(BadInput, match="lease epoch 8 is over"):
        machine.on_request(RequestState("second", "resize", target=Size(1, 1)), 0.0, epoch=8)
    again.close()
