"""What people read about a job."""

import io
from dataclasses import replace
from typing import Any

import pytest

from elastic_runtime.control.messages import JobStatus, RequestOutcome, RequestState, ResizeMode, Size, TaskStatus
from elastic_runtime.launcher.commands.job_tables import job_table, jobs_table
from elastic_runtime.launcher.job_status import status_record
from elastic_runtime.protocol.plan import JobPhase, TaskRole
from foundation.tables import table_console

ROLLING = RequestState(
    "r1",
    "resize",
    RequestOutcome.DONE,
    target=Size(2, 1),
    began_unix_seconds=100.0,
    ended_unix_seconds=111.5,
    stall_seconds=0.00031,
)
RESTART = replace(ROLLING, mode=ResizeMode.CHECKPOINT_RESTART)
SUSPENSION = replace(ROLLING, kind="suspend", target=Size(0, 0))


def shown(phase: JobPhase, **values: Any) -> str:
    status = JobStatus("net-1", phase, **values)
    console = table_console()
    console.file = io.StringIO()
    console.print(job_table({**status_record(status), "launcher": None, "script": None, "folder": "jobs/net-1"}))
    return console.file.getvalue()


@pytest.mark.parametrize(("asked", "stall"), [(ROLLING, True), (RESTART, False), (SUSPENSION, False)])
def test_a_request_says_how_long_it_took_and_its_stall_only_where_workers_live_on(
    asked: RequestState, stall: bool
) -> None:
    (line,) = [line for line in shown(JobPhase.RUNNING, requests=(asked,)).splitlines() if line.startswith("r1 ")]
    assert "11.5 s" in line
    assert ("0.31 ms" in line) is stall
    assert line.count(" ms") == stall


def test_updates_that_were_computed_again_are_said_to_be_so() -> None:
    assert "568 of 564, 4 of them again, durable 9" in shown(
        JobPhase.RUNNING, step=568, total_steps=564, durable_step=9
    )
    assert "564 of 564, durable 9" in shown(JobPhase.RUNNING, step=564, total_steps=564, durable_step=9)


def test_what_was_wanted_is_said_of_a_job_that_may_go_on() -> None:
    assert "0 PS, 0 workers (wanted: 2 PS, 1 worker)" in shown(JobPhase.STARTING, target=Size(2, 1))
    assert "wanted" not in shown(JobPhase.FINISHED, target=Size(2, 1))


@pytest.mark.parametrize(
    ("replicas", "servers", "blocks", "held_twice", "line"),
    [
        (2, 2, 64, 64, "2 of each block (64)"),
        (2, 2, 64, 60, "60 of 64 blocks have 2; being made"),
        (2, 1, 64, 0, "0 of 64 blocks have 2; one parameter server cannot hold two"),
        (2, 0, 0, 0, ""),
        (1, 2, 64, 0, ""),
    ],
)
def test_a_table_says_how_many_blocks_have_two_holders(
    replicas: int, servers: int, blocks: int, held_twice: int, line: str
) -> None:
    size = Size(servers, 2)
    table = shown(
        JobPhase.RUNNING, size=size, target=size, replicas=replicas, blocks=blocks, blocks_with_replica=held_twice
    )
    rows = [row.strip().removeprefix("replicas").strip() for row in table.splitlines() if "replicas" in row]
    assert rows == ([line] if line else [])


def busy_task(name: str, role: TaskRole) -> TaskStatus:
    return TaskStatus(
        name, role, "member", step=123456, samples_per_second=56133.4, owned_bytes=344e6, bytes_sent=1.38e9,
        bytes_received=999e6, stall_seconds=0.08438, report_age_seconds=12.3,
    )  # fmt: skip


def test_a_busy_job_fits_into_eighty_columns_with_speeds_in_plain_digits() -> None:
    rows = [replace(ROLLING, request_id="f1bd4180184a0123", target=Size(12, 16), clock=123456, moved_bytes=344_000_000)]
    rows.append(replace(rows[0], request_id="0123456789abcdef", state=RequestOutcome.ABORTED, detail="no room " * 12))
    tasks = (busy_task("ps-12", TaskRole.SERVER), busy_task("worker-12", TaskRole.WORKER))
    console = table_console()
    console.width, console.file = 80, io.StringIO()
    status = JobStatus("net-1", JobPhase.RUNNING, tasks=tasks, requests=tuple(rows), samples_per_second=56133.4)
    console.print(job_table({**status_record(status), "launcher": None, "script": None, "folder": "jobs/net-1"}))
    table = console.file.getvalue()
    assert all(len(line) <= 80 for line in table.splitlines())
    assert "56,133 samples/s" in table
    assert "…" not in table
    for row in ("ps-12 ", "worker-12 "):
        (line,) = [line for line in table.splitlines() if line.startswith(row)]
        assert line.rstrip().endswith("12.3 s")
        assert "56,133" in line
    (line,) = [line for line in table.splitlines() if line.startswith("f1bd4180 ")]
    assert "12 PS, 16 workers" in line
    assert line.rstrip().endswith("0.31 ms")
    assert "01234567: no room no room" in table


def test_a_job_without_tasks_has_no_speed_and_no_stall_to_show() -> None:
    resting = shown(JobPhase.SUSPENDED, requests=(ROLLING,))
    assert "samples/s" not in resting
    assert "in resizes" not in resting
    running = shown(JobPhase.RUNNING, tasks=(busy_task("worker-0", TaskRole.WORKER),), stall_seconds=0.0005)
    assert "0.50 ms in resizes" in running


def test_a_list_shows_the_whole_path_of_every_script_in_eighty_columns() -> None:
    console = table_console()
    console.width, console.file = 80, io.StringIO()
    script = "/home/somebody/experiments/vision/train.py"
    facts = {"job": "train-12", "phase": "suspended", "size": {"ps": 0, "workers": 0}, "script": script}
    console.print(jobs_table([{**facts, "step": 3051, "total_steps": 6280, "durable_step": 3051}]))
    table = console.file.getvalue()
    assert all(len(line) <= 80 for line in table.splitlines())
    *_, said = table.splitlines()
    assert said.strip() == script
    assert "3051 of 6280" in table


@pytest.mark.parametrize(
    ("phase", "age", "usual", "says"),
    [
        (JobPhase.RUNNING, 3.0, 0.1, "3 s ago"),
        (JobPhase.RUNNING, 65.0, 0.1, "65 s ago; steps took 100 ms: does the script hang?"),
        (JobPhase.RUNNING, 65.0, 20.0, "65 s ago"),
        (JobPhase.SUSPENDING, 65.0, 0.1, "65 s ago"),
    ],
)
def test_a_job_whose_workers_all_stand_is_said_to_hang(phase: JobPhase, age: float, usual: float, says: str) -> None:
    slower = replace(busy_task("worker-1", TaskRole.WORKER), step_age_seconds=age + 1)
    tasks = (
        replace(busy_task("worker-0", TaskRole.WORKER), step_age_seconds=age),
        slower,
        busy_task("ps-0", TaskRole.SERVER),
    )
    (line,) = [
        line
        for line in shown(phase, tasks=tasks, step_seconds=usual).splitlines()
        if line.strip().startswith("last step")
    ]
    assert line.strip().removeprefix("last step").strip() == says
