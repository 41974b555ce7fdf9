"""What people read about a job."""

import io
from dataclasses import replace
from typing import Any

import pytest

from elastic_runtime.control.messages import JobStatus, RequestOutcome, RequestState, ResizeMode, Size
from elastic_runtime.launcher.options import console_of
from elastic_runtime.launcher.status_record import status_record
from elastic_runtime.launcher.status_table import job_table
from elastic_runtime.plan import Phase

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


def shown(phase: Phase, **values: Any) -> str:
    status = JobStatus("net-1", phase, **values)
    console = console_of(terminal=False)
    console.file = io.StringIO()
    console.print(job_table({**status_record(status), "launcher": None, "script": None, "folder": "jobs/net-1"}))
    return console.file.getvalue()


@pytest.mark.parametrize(("asked", "stall"), [(ROLLING, True), (RESTART, False), (SUSPENSION, False)])
def test_a_request_says_how_long_it_took_and_its_stall_only_where_workers_live_on(
    asked: RequestState, stall: bool
) -> None:
    (line,) = [line for line in shown(Phase.RUNNING, requests=(asked,)).splitlines() if " r1 " in line]
    assert "11.5 s" in line
    assert ("0.31 ms" in line) is stall
    assert line.count(" ms") == stall


def test_updates_that_were_computed_again_are_said_to_be_so() -> None:
    assert "568 of 564, 4 of them again, durable 9" in shown(Phase.RUNNING, step=568, total_steps=564, durable_step=9)
    assert "564 of 564, durable 9" in shown(Phase.RUNNING, step=564, total_steps=564, durable_step=9)


def test_what_was_wanted_is_said_of_a_job_that_may_go_on() -> None:
    assert "0 PS, 0 workers (wanted: 2 PS, 1 worker)" in shown(Phase.STARTING, target=Size(2, 1))
    assert "wanted" not in shown(Phase.FINISHED, target=Size(2, 1))


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
        Phase.RUNNING, size=size, target=size, replicas=replicas, blocks=blocks, blocks_with_replica=held_twice
    )
    rows = [row.strip().removeprefix("replicas").strip() for row in table.splitlines() if "replicas" in row]
    assert rows == ([line] if line else [])
