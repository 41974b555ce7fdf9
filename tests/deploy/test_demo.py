"""The demo from its command to its report, small, with real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from policy_net.exchange.policy_file import read_policy_file

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 380


def _demo(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deploy.local", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


SMALL = {
    "dl2": ("--policy", "dl2", "--jobs", "6", "--updates", "10", "--seconds", "200", "--imitation-steps", "50"),
    "set": ("--jobs", "12", "--updates", "12", "--seconds", "200"),
}
"""What each kind of policy gets through in some seconds; `set` is what runs unless one is named."""


@pytest.mark.heavy
@pytest.mark.timeout(400)
@pytest.mark.parametrize("policy", [pytest.param("dl2", marks=pytest.mark.long), "set"])
def test_a_small_demo_learns_compares_and_reports(tmp_path: Path, policy: str) -> None:
    options = SMALL[policy]
    jobs = int(options[options.index("--jobs") + 1])
    done = _demo(tmp_path, "--fleet", "language,mixed", "--seed", "3", *options)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "report/summary.json").read_text())
    assert list(summary) == ["clusters", "learner", "learning", "wall_seconds"]
    for cluster, name in zip(summary["clusters"], ("language", "mixed"), strict=True):
        assert list(cluster) == [
            "name", "workload", "nodes", "jobs", "completed", "avg_jct_seconds", "guard_interventions",
        ]  # fmt: skip
        assert cluster["name"] == name
        assert cluster["completed"] == cluster["jobs"] == jobs
        assert list(cluster["avg_jct_seconds"]) == ["drf", "optimus", "v1", "learned"]
    learner = summary["learner"]
    assert list(learner) == ["head_step", "updates_accepted", "updates_rejected", "staleness_p50", "versions"]
    assert learner["head_step"] == learner["updates_accepted"] > 0
    assert learner["versions"][0] == 1
    assert list(summary["learning"]) == ["validation_jct_v1", "validation_jct_final"]
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == ["index.html", "summary.json"]
    assert "final/DRF" in done.stdout
    # The first version has no moments, and of the others the newest alone keeps them.
    assert len(list((tmp_path / "run/learner/heads").iterdir())) == (learner["versions"] != [1])
    kind = read_policy_file(tmp_path / "run/versions/v1.safetensors").spec.policy
    assert kind == policy
    if policy == "set":
        for cluster in summary["clusters"]:
            figures = cluster["avg_jct_seconds"]
            assert figures["v1"] < figures["drf"], "the policy that ships is good from its first decision on"
            assert figures["learned"] < figures["drf"]
    page = (tmp_path / "report/index.html").read_text(encoding="utf-8")
    content = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert [row["cluster"] for row in content["clusters"]] == ["language", "mixed"]
    assert {row["identity"] for row in content["clusters"]} == {"enrolled"}
    assert "under DRF, with the final version" in content["headline"]["text"]
    assert content["completion"]["rows"][0]["seconds"] == summary["clusters"][0]["avg_jct_seconds"]
    assert content["staleness"]["total"] == learner["head_step"]
    assert content["learning"]["points"][0]["version"] == 1
    assert {job["cluster"] for job in content["jobs"]} == {"language", "mixed"}
    assert "replayed" in content["jobs"][0]["name"]


def test_bad_input_is_one_line_and_starts_nothing(tmp_path: Path) -> None:
    done = _demo(tmp_path, "--workloads", "nowhere")
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["demo: WORKLOADS=nowhere: no such folder; name one that holds csv files"]
    assert not (tmp_path / "run").exists()
