"""What a job's table says of second holders."""

import pytest
from rich.console import Console

from elastic_runtime.control.messages import JobStatus, Size
from elastic_runtime.launcher.status_record import status_record
from elastic_runtime.launcher.status_table import job_table
from elastic_runtime.plan import Phase

PLACE = {"folder": "/jobs/digits", "script": "train.py"}


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
    status = JobStatus(
        "digits",
        Phase.RUNNING,
        size=size,
        target=size,
        replicas=replicas,
        blocks=blocks,
        blocks_with_replica=held_twice,
    )
    console = Console(width=160)
    with console.capture() as captured:
        console.print(job_table({**status_record(status), **PLACE}))
    lines = [row.strip() for row in captured.get().splitlines()]
    rows = [row.removeprefix("replicas").strip() for row in lines if row.startswith("replicas")]
    assert rows == ([line] if line else [])
