"""Many small real jobs one after the other: the agent's memory and files stay as they are, and no process is left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from killed_machine import Machine

pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")]
JOBS = int(os.environ.get("FEDL2_SOAK_JOBS", "60"))
"""A second or two of a core each, most of it the start of Python."""
AT_ONCE = 10
MOST_KEPT_BYTES = 8e6
"""That the allocator may keep of what was once needed; what leaks grows with the jobs."""


def resident_bytes(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files(process: int) -> int:
    return sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())


def run_jobs(machine: Machine, numbers: range) -> None:
    """Some at once; each takes a GPU of the three, or none."""
    for first in numbers[::AT_ONCE]:
        names = [f"job-{number}" for number in range(first, min(first + AT_ONCE, numbers.stop))]
        for index, name in enumerate(names):
            worker = {"replicas": 1 + (index % 5 == 0), "cpu": 0.3, "gpu": int(index % 3 == 0)}
            machine.submit({"name": name, "modelType": "tiny", "script": "tiny.py", "args": [name], "worker": worker})
        machine.wait_for(
            lambda names=names: all(machine.facts(name).get("ended") for name in names),  # type: ignore[misc]
            f"{names} end",
        )


@pytest.mark.timeout(600 + 20 * JOBS)
def test_jobs_that_came_and_went_leave_nothing_behind(tmp_path: Path) -> None:
    with Machine(tmp_path) as machine:
        code = "import os, sys\nwith open(f'ran-{sys.argv[1]}', 'a') as ran: ran.write('x')\n"
        (tmp_path / "tiny.py").write_text(code, encoding="utf-8")
        run_jobs(machine, range(JOBS // 2))
        machine.wait_for(lambda: not machine.processes(), "no process is left")
        descriptors = open_files(machine.agent)
        resident = resident_bytes(machine.agent)
        run_jobs(machine, range(JOBS // 2, JOBS))
        machine.wait_for(lambda: not machine.processes(), "no process is left")
        machine.wait_for(lambda: open_files(machine.agent) <= descriptors, "as many files are open as before")
        assert resident_bytes(machine.agent) - resident < MOST_KEPT_BYTES
        jobs = machine.call("jobs", {})["jobs"]
        assert [job["state"] for job in jobs] == ["done"] * JOBS
        for job in jobs:
            ran = (tmp_path / f"ran-{job['name']}").read_text(encoding="utf-8")
            assert ran == "x" * (1 + (int(job["name"].removeprefix("job-")) % AT_ONCE % 5 == 0))
        state = tmp_path / "state"
        names = {path.name for path in (state / "jobs").iterdir()}
        assert names == {
            f"job-{number}{end}" for number in range(JOBS) for end in ("", ".launcher.lock", ".launcher.log")
        }
        assert not list(state.rglob("*.partial"))
        assert machine.problems == []
