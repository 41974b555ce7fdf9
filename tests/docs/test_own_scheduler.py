"""The scheduler in the page on adding runs as it stands, beside the others."""

import json
import sys
from pathlib import Path

import pytest
from docs_pages import ROOT, blocks

from foundation import command_line
from policy_net import policy
from policy_net.cli import app

(MINE,) = blocks(ROOT / "docs" / "adding.md", "python")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the module; what is registered from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(policy, "factories", dict(policy.factories))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine_of_the_page", raising=False)  # that of another test's folder
    (tmp_path / "mine_of_the_page.py").write_text(MINE)
    return tmp_path


@pytest.mark.parametrize("decide_on", ["slot", "event"])
@pytest.mark.parametrize("workload", ["dl2:jobs=12,seed=7", "jobs.csv"])
def test_the_scheduler_of_the_page_finishes_all_jobs(
    folder: Path, capsys: pytest.CaptureFixture[str], workload: str, decide_on: str
) -> None:
    rows = "".join(f"j{number},{60 * number},{3600 * (1 + number % 3)},{1 + number % 5}\n" for number in range(12))
    (folder / "jobs.csv").write_text(f"job_id,submit_time_s,duration_s,num_gpus\n{rows}")
    words = ["replay", "--workload", workload, "--nodes", "2", "--policy", "fifo", "--decide-on", decide_on]
    assert command_line.run(app, "policy-net", [*words, "--policy", "mine_of_the_page:build", "-o", "json"]) == 0
    fifo, mine = json.loads(capsys.readouterr().out)
    assert (mine["policy"], mine["completed"]) == ("fewest-epochs-left", 12)
    assert mine["avg_jct_seconds"] < fifo["avg_jct_seconds"]  # short jobs first are done sooner on average
