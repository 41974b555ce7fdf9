"""What the benchmarks of `dl2` refuse before they begin."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("dl2_learning", "--file", "nothing.safetensors"), "--file: nothing.safetensors: cannot be read"),
        (("dl2_fleet", "--draws", "1"), "--draws 1: one draw has nothing to be compared with; take 2 or more"),
        (("dl2_safety", "--data", "nowhere"), "--data nowhere: no such folder; name one of recorded workloads"),
    ],
)
@pytest.mark.heavy
def test_bad_input_is_one_line_at_once(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"benchmarks.{words[0]}", *words[1:]]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]
