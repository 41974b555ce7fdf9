"""`policyctl report` on real agents and a learner: jobs that may be told and no others; later, what is in files."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE_SECONDS, Fleet

pytestmark = pytest.mark.heavy


def write(fleet: Fleet, *words: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "global_learner.policyctl.cli",
        "report",
        "--out",
        str(fleet.folder / "out"),
        *words,
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, env=environment, check=False
    )


def content_of(page: Path) -> dict[str, Any]:
    text = page.read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    return content


def test_the_report_holds_the_jobs_that_clusters_tell_and_later_what_is_in_files(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    try:
        learner = fleet.start_learner()
        quiet = fleet.learning()
        open_ = {**quiet, "learner": {**quiet["learner"], "job_timelines": 4}}  # type: ignore[dict-item]
        quiet = {**quiet, "learner": {**quiet["learner"], "tell_load": False}}  # type: ignore[dict-item]
        agents = [fleet.start_agent("open", **open_), fleet.start_agent("quiet", **quiet)]
        assert [agent.ended() for agent in agents] == [0, 0]
        done = write(fleet, "--learner", f"unix:{fleet.folder}/learner/operator.sock", "-o", "json")
        assert done.returncode == 0, done.stderr
        page = tmp_path / "out/index.html"
        content = content_of(page)
        assert json.loads(done.stdout) == {
            "page": str(page),
            "headline": content["headline"]["text"],
            "clusters": 2,
            "clusters_not_registered": 0,
            "clusters_revoked": 0,
            "versions": len(content["versions"]),
        }
        rows = {row["cluster"]: row for row in content["clusters"]}
        assert all(row["jobs_done"] == 12 and row["state"]["word"] == "finished" for row in rows.values())
        assert {job["cluster"] for job in content["jobs"]} == {"open"}
        assert [job["completed"] for job in content["jobs"]] == [True, True]
        (scope,) = content["load"]["scopes"]
        assert (scope["name"], scope["axis"]) == ("open", "simulated time")
        assert "Not reported by quiet" in scope["note"]
        assert max(filter(None, scope["curves"][-1]["used"])) > 0.0
        assert rows["open"]["avg_jct_seconds"] == fleet.summary("open")["avg_jct_seconds"]
        staleness = content["staleness"]
        assert staleness["total"] == sum(row["updates_accepted"] for row in rows.values())

        state_dir = ("--state-dir", str(tmp_path / "learner"))
        held = write(fleet, *state_dir)
        assert (held.returncode, len(held.stderr.splitlines())) == (2, 1)
        assert "leave --state-dir out" in held.stderr
        assert learner.stop() == 0
        done = write(fleet, *state_dir)
        assert done.returncode == 0, done.stderr
        content = content_of(page)
        assert content["headline"]["text"] == "The learner of this fleet has ended"
        assert content["attention"] == []
        assert content["load"] is None
        for row in content["clusters"]:
            # What a cluster said of its jobs is in no file: not known, which is not the same as none.
            assert (row["state"]["word"], row["jobs_done"]) == ("not known", None)
            assert row["updates_accepted"] == fleet.summary(row["cluster"])["updates"]["acknowledged"] > 0
        assert len(content["clusters"]) == 2
        accepted = sum(row["updates_accepted"] for row in content["clusters"])
        assert content["learner"]["head_step"] == accepted
        assert content["staleness"]["total"] == min(accepted, 256)
        nothing = write(fleet, "--state-dir", str(tmp_path))
        assert (nothing.returncode, len(nothing.stderr.splitlines())) == (2, 1)
        assert "no learner's state directory" in nothing.stderr
    finally:
        fleet.close()


def test_a_report_that_cannot_be_had_or_written_is_one_line(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    try:
        away = write(fleet, "--learner", "127.0.0.1:1", "--timeout", "1")
        assert (away.returncode, len(away.stderr.splitlines())) == (3, 1)
        assert not (tmp_path / "out").exists()
        fleet.start_learner()
        (tmp_path / "out").write_text("a file")
        full = write(fleet, "--learner", f"unix:{fleet.folder}/learner/operator.sock")
        assert (full.returncode, len(full.stderr.splitlines())) == (2, 1)
        assert "name another folder with --out" in full.stderr
    finally:
        fleet.close()
