"""The demo from its command to its report, small, with real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from policy_net.exchange.policy_file import read_policy_file
from policy_net.exchange.spec import SetSpec

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 2400
"""It takes two to four minutes; on a busy machine rollouts wait for their verdicts as long as blocks come."""


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
    "dl2": ("--policy", "dl2", "--jobs", "20", "--updates", "10", "--seconds", "200"),
    "set": ("--jobs", "12", "--updates", "12", "--seconds", "200", "--lessons", "3"),
}
"""What each kind of policy gets through in some seconds; `set` is what runs unless one is named."""


@pytest.mark.heavy
@pytest.mark.long
@pytest.mark.timeout(2450)
@pytest.mark.parametrize("policy", ["dl2", "set"])
def test_a_small_demo_learns_compares_and_reports(tmp_path: Path, policy: str) -> None:
    options = SMALL[policy]
    jobs = int(options[options.index("--jobs") + 1])
    done = _demo(tmp_path, "--fleet", "language,mixed", "--seed", "3", *options)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "report/summary.json").read_text())
    assert list(summary) == [
        "clusters", "learner", "learning", "wall_seconds", "rollouts", "canary_power", "lessons",
    ]  # fmt: skip
    for cluster, name in zip(summary["clusters"], ("language", "mixed"), strict=True):
        assert list(cluster) == [
            "name", "workload", "nodes", "jobs", "completed", "avg_jct_seconds", "guard_interventions",
        ]  # fmt: skip
        assert cluster["name"] == name
        assert cluster["completed"] == cluster["jobs"] == jobs
        assert list(cluster["avg_jct_seconds"]) == ["fifo-easy", "drf", "optimus", "v1", "learned"]
    learner = summary["learner"]
    assert list(learner) == ["head_step", "updates_accepted", "updates_rejected", "staleness_p50", "versions"]
    assert learner["head_step"] == learner["updates_accepted"] > 0
    assert learner["versions"][0] == 1
    assert list(summary["learning"]) == [
        "validation_jct_v1", "validation_jct_final", "v1_over_fifo-easy", "final_over_v1",
    ]  # fmt: skip
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == ["index.html", "summary.json"]
    assert "newest/" in done.stdout, "a column of its own, whose heading may take two lines"
    kind = read_policy_file(tmp_path / "run/versions/v1.safetensors").spec.policy
    assert kind == policy
    if policy == "set":
        check_rollouts(summary, done.stdout)
        check_canary_power(tmp_path, summary, done.stdout)
        check_lessons(tmp_path, summary, done.stdout)
        for cluster in summary["clusters"]:
            figures = cluster["avg_jct_seconds"]
            assert figures["v1"] < figures["drf"], "the policy that ships is good from its first decision on"
            assert figures["learned"] < figures["drf"]
    else:
        assert summary["rollouts"] == []
        assert summary["canary_power"] is None
        assert summary["lessons"] is None
    page = (tmp_path / "report/index.html").read_text(encoding="utf-8")
    content = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert [row["cluster"] for row in content["clusters"]] == ["language", "mixed"]
    assert {row["identity"] for row in content["clusters"]} == {"enrolled"}
    first = {"set": "the shipped policy", "dl2": "the first version"}[policy]
    assert content["headline"]["text"].startswith(f"In simulation, {first} alone takes ")
    assert f"{content['headline']['text']}." in done.stdout
    assert content["completion"]["rows"][0]["seconds"] == summary["clusters"][0]["avg_jct_seconds"]
    assert content["staleness"]["total"] == learner["head_step"]
    assert content["learning"]["points"][0]["version"] == 1
    assert [scope["name"] for scope in content["load"]["scopes"]] == ["all 2 clusters", "language", "mixed"]
    assert {job["cluster"] for job in content["jobs"]} == {"language", "mixed"}


def check_lessons(folder: Path, summary: dict[str, Any], said: str) -> None:
    lessons = summary["lessons"]
    assert list(lessons) == ["windows", "jobs", "updates", "learned_mean", "learned_ci95", "points"]
    assert (lessons["windows"], lessons["jobs"]) == (12, 3600), "six windows of each of two clusters"
    first, last = lessons["points"][0], lessons["points"][-1]
    assert (first["head_step"], first["mean"], first["error"]) == (0, 0.0, 0.0)
    assert set(first["by"]) == {"language", "mixed"}
    assert last["mean"] == lessons["learned_mean"] != 0.0, "what the pasts taught decides otherwise"
    assert last["head_step"] == lessons["updates"] >= 3
    assert f"lessons: {last['head_step']} updates from recorded pasts: later jobs take " in said
    spec = read_policy_file(folder / "run/lessons/versions/v1.safetensors").spec
    assert isinstance(spec, SetSpec)
    assert spec.prices
    assert spec.sessions


def check_rollouts(summary: dict[str, Any], said: str) -> None:
    made, worse = summary["rollouts"]
    assert [made["version"], worse["version"]] == summary["learner"]["versions"][-2:]
    assert (made["ended"], made["incumbent"], made["acting"]) == ("done", 1, made["version"]), said
    assert [(stage["kind"], stage["outcome"]) for stage in made["stages"]] == [
        ("gate", "pass"), ("shadow", "pass"), ("canary", "pass"), ("fleet", "pass"),
    ]  # fmt: skip
    assert made["stages"][-1]["pairs"] >= 12, "of each of two clusters, with the other left out, no fewer than six"
    assert (worse["ended"], worse["incumbent"], worse["acting"]) == ("rolled-back", made["version"], made["version"])
    assert [(stage["kind"], stage["outcome"]) for stage in worse["stages"]] == [("gate", "fail")]
    assert worse["reason"] == f"failed in stage gate: {worse['stages'][0]['reason']}"
    assert f"rollout of v{made['version']}, which this fleet made, in place of v1" in said
    assert "rollout 1 of" in said
    assert f"rollout 2 of v{worse['version']}, made worse on purpose: rolled-back" in said


def check_canary_power(folder: Path, summary: dict[str, Any], said: str) -> None:
    power = summary["canary_power"]
    assert (power["rollout"], power["margin"], power["worse"]["loss"]) == (1, 0.1, 0.1)
    assert power["pairs"] >= 12
    assert power["worse"]["stopped"] > 0.8, "a version 10% worse does not get past the canaries"
    sentence = f"a version 10% worse would be stopped by its canary stage in {power['worse']['stopped']:.0%}"
    assert sentence in said
    page = (folder / "report/index.html").read_text(encoding="utf-8")
    content = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    newest, first = content["rollouts"]["cards"]
    assert sentence[1:] in first["said"][-1]
    assert first["shown"]
    assert "shown" not in newest


def test_bad_input_is_one_line_and_starts_nothing(tmp_path: Path) -> None:
    done = _demo(tmp_path, "--workloads", "nowhere")
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["demo: WORKLOADS=nowhere: no such folder; name one that holds csv files"]
    assert not (tmp_path / "run").exists()
