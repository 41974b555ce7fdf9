import sys
import time
from pathlib import Path

from cluster_agent.backends.local.launchers import Launchers

DEADLINE_SECONDS = 100.0


def test_a_launcher_imports_nothing_from_the_folder_in_which_its_job_works(tmp_path: Path) -> None:
    jobs, works_in = tmp_path / "jobs", tmp_path / "user"
    for folder in (jobs, works_in):
        folder.mkdir()
    (works_in / "json.py").write_text("raise SystemExit('of the user')\n", encoding="utf-8")
    launchers = Launchers(jobs)
    launchers.spawn("first", [sys.executable, "-m", "elastic_runtime.cli", "--version"], works_in, {})
    deadline = time.monotonic() + DEADLINE_SECONDS
    while launchers.running("first") is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (jobs / "first.launcher.log").read_text(encoding="utf-8").startswith("elastic-run ")
