"""CPU quotas of jobs: by a real control group where this user may make one, and refused where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from cluster_agent.backends.local.machine_shares import CoreMap, CpuQuota
from cluster_agent.errors import BadAgentConfig


def _is_kept_exactly(folder: Path, shows: Callable[[Path], str]) -> None:
    """A quota of 1.5 cores, then of half a one, for a process of ours."""
    before = os.sched_getaffinity(0)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    cores = CoreMap(sorted(before), lambda name: [process.pid], CpuQuota(folder))
    try:
        cores.grant("job", 1500)
        cores.bind("job")
        assert shows(folder / "job") == "150000 100000"
        assert str(process.pid) in (folder / "job" / "cgroup.procs").read_text(encoding="ascii").split()
        cores.grant("job", 500)
        cores.bind("job")
        assert shows(folder / "job") == "50000 100000"
    finally:
        process.kill()
        process.wait()
    cores.release("job")


def test_a_cgroup_that_the_operator_names_gets_the_exact_share(tmp_path: Path) -> None:
    """As the second version has it, with files that the kernel would have made."""
    for folder in (".trial", "job"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "cpu.max").write_text("max 100000\n", encoding="ascii")
    _is_kept_exactly(tmp_path, lambda group: (group / "cpu.max").read_text(encoding="ascii").strip())


_CPU_GROUPS = Path("/sys/fs/cgroup/cpu")


@pytest.mark.skipif(
    not (os.access(_CPU_GROUPS, os.W_OK) and (_CPU_GROUPS / "cpu.cfs_quota_us").exists()),
    reason="this user may not make control groups of the first version here",
)
def test_the_kernel_keeps_a_job_to_its_share_where_it_may(tmp_path: Path) -> None:
    folder = _CPU_GROUPS / f"fedl2-test-{os.getpid()}"

    def shows(group: Path) -> str:
        files = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        return " ".join((group / name).read_text(encoding="ascii").strip() for name in files)

    try:
        _is_kept_exactly(folder, shows)
        deadline = time.monotonic() + 60
        while not _removed(folder / "job"):  # the kernel forgets an ended process a moment later
            assert time.monotonic() < deadline
    finally:
        _removed(folder)


def _removed(folder: Path) -> bool:
    with suppress(OSError):
        folder.rmdir()
    return not folder.exists()


def test_a_folder_that_keeps_nothing_to_a_share_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        BadAgentConfig, match=r"setting backend.cgroup = .*no CPU quota can be set there .*leave it out"
    ):
        CpuQuota(tmp_path)
    assert not any(tmp_path.iterdir())
    with pytest.raises(BadAgentConfig, match=r"setting backend.cgroup = "):
        CpuQuota(tmp_path / "no" / "such")
