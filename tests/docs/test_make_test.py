"""`make test` comes to an end, with a name, when a test takes the process down that runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs_pages import ROOT

KILLS = "import os, signal\ndef test_{n}(): pass\ndef test_kills(): os.kill(os.getpid(), signal.SIGKILL)\n"


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_a_test_that_kills_its_process_ends_the_run_with_its_name(tmp_path: Path) -> None:
    line = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "pytest -n" in line)
    options = re.sub(
        r"^.*-m pytest|\$\(TEST_PROCESSES\)", lambda found: "2" if "$" in found[0][:1] else "", line
    ).split()
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_killer.py").write_text(KILLS.format(n=1))
    for number in range(3):
        (tmp_path / f"test_other_{number}.py").write_text("def test_1(): pass\ndef test_2(): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:asyncio", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count("FAILED test_killer.py::test_kills") == 1, done.stdout
