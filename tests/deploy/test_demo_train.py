"""The demonstration of real jobs from its command to its page, small, with real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.train.charts import Curve, Lane, curves, lanes, scatter
from deploy.train.jobs import arrivals

ROOT = Path(__file__).parents[2]


@pytest.mark.heavy
@pytest.mark.timeout(1500)
def test_real_jobs_train_and_are_told_of(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "deploy.train", "--jobs", "3", "--work", "0.25", "--seconds", "1200"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "report/summary.json").read_text())
    assert [(job["name"], job["state"]) for job in summary["jobs"]] == [
        ("digits-short", "done"),
        ("gpt-short", "done"),
        ("tabular-short", "done"),
    ]
    assert all(job["samples"] > 0 and job["loss"] is not None for job in summary["jobs"])
    assert summary["jobs"][0]["samples"] == 4 * 1437, "four epochs of its pictures, none lost and none twice"
    assert summary["decisions"] > 2
    assert summary["acting_versions"][0] == 1
    assert summary["stall_share"] < 0.1
    page = (tmp_path / "report/index.html").read_text(encoding="utf-8")
    assert "3 jobs shared" in page
    assert "<script" not in page
    for name in ("digits-short", "gpt-short", "tabular-short"):
        assert page.count(name) > 2
    assert "demo-train" not in done.stderr, "no error line"


def test_charts_stand_without_anything_to_show_and_never_take_a_name_for_markup() -> None:
    lane = Lane("<b>job", 0.0, 5.0, [(1.0, 2, 1, "running")], [(2.0, "a & b")], 0, "done")
    drawn = lanes([lane], 10.0, 2)
    assert "<b>job" not in drawn
    assert "&lt;b&gt;job" in drawn
    assert "Nothing was seen" in curves([Curve("a", [], 0)], 10.0, "Loss")
    assert "<svg" in curves([Curve("a", [(1.0, 0.5)], 0)], 10.0, "Loss", log=True)
    assert "Nothing was measured" in scatter([], "Speeds")


def test_jobs_come_in_their_order_with_the_share_of_work_that_is_asked_for() -> None:
    chosen = arrivals(4, 0.1)
    assert [job.name for job in chosen] == ["digits-short", "gpt-short", "tabular-short", "digits-long"]
    assert [job.epochs for job in chosen] == [2, 1, 4, 3]
    assert chosen[0].file(2)["worker"] == {"min": 1, "max": 2, "cpu": "400m"}
