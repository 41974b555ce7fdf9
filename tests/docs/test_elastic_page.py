"""Scripts of the page on elastic training run as they stand, before and after what changes, and train about as well."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs_pages import ROOT

from elastic_runtime.errors import BadInput
from elastic_runtime.launcher.commands.launch_checks import check_joins

PAGE = ROOT / "docs" / "guide" / "elastic.md"
_SECTION = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_DIFF = re.compile(r"^```diff\n(.*?)^```", re.MULTILINE | re.DOTALL)
DIFFS = {
    title: block for title, text in _SECTION.findall(PAGE.read_text(encoding="utf-8")) for block in _DIFF.findall(text)
}
OWN_LOOP = "Your own loop"
LOSS_BELOW = 0.05
"""All of them learn something that can be learned; before, all are above 0.3."""
DEADLINE_SECONDS = 500.0


def side(block: str, sign: str) -> str:
    """The script before (`-`) or after (`+`)."""
    kept = [line for line in block.splitlines() if line[:1] in ("", " ", sign)]
    return "\n".join(line[1:] for line in kept) + "\n"


def last_loss(printed: str) -> float:
    return float(re.findall(r"loss ([0-9.]+)", printed)[-1])


def run(folder: Path, *line: str) -> str:
    """What Python started so prints. In a process of its own: gloo and autograd leave threads in theirs."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", *line],
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


def test_each_case_has_its_script() -> None:
    assert len(DIFFS) == 5
    assert all(line[:1] in ("", " ", "+", "-") for block in DIFFS.values() for line in block.splitlines())


@pytest.mark.heavy
@pytest.mark.timeout(600)
@pytest.mark.parametrize("sign", ["-", "+"])
@pytest.mark.parametrize("title", DIFFS)
def test_a_script_trains_before_and_after(title: str, sign: str, tmp_path: Path) -> None:
    # In place of torchrun's variables, which name a port: a file that one process alone meets at.
    one = f'dist.init_process_group("gloo", init_method="file://{tmp_path}/store", rank=0, world_size=1)'
    script = tmp_path / "train.py"
    text = side(DIFFS[title], sign).replace('dist.init_process_group("gloo")', one)
    script.write_text(text, encoding="utf-8")
    assert last_loss(run(tmp_path, str(script))) < LOSS_BELOW
    assert (tmp_path / "model.pt").exists()


@pytest.mark.parametrize("title", DIFFS)
def test_only_the_script_after_is_taken(title: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(side(DIFFS[title], "+"), encoding="utf-8")
    check_joins(script)
    script.write_text(side(DIFFS[title], "-"), encoding="utf-8")
    with pytest.raises(BadInput, match=r"does not import elastic_runtime|elastic-run is no torchrun"):
        check_joins(script)


@pytest.mark.heavy
@pytest.mark.timeout(600)
@pytest.mark.parametrize("title", DIFFS)
def test_a_script_trains_by_two_workers(title: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(side(DIFFS[title], "+"), encoding="utf-8")
    # Made before the job, as the page says: two workers would make it at the same time.
    (tmp_path / "samples.txt").write_text(
        "".join(f"{x / 256} {3 * x / 256 - 1}\n" for x in range(256)), encoding="utf-8"
    )
    line = ["elastic_runtime.cli", "--workers", "2", "--folder", str(tmp_path / "jobs"), str(script)]
    if title == OWN_LOOP:
        line = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    printed = run(tmp_path, "-m", *line)
    assert title == OWN_LOOP or "has finished after" in printed
    assert last_loss(printed) < LOSS_BELOW
    assert (tmp_path / "model.pt").exists()
