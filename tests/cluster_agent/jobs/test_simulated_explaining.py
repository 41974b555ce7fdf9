"""Why a simulated agent decided so, from what it keeps; what cannot be said is one line."""

import json
from pathlib import Path

import pytest

from cluster_agent.cli import app
from cluster_agent.recording.log_reading import last_decision
from foundation.command_line import run

CONFIG = """
cluster: alpha
state_dir: state
backend:
  workloads: [{source: "dl2:jobs=6,seed=1"}]
  environment: {nodes: 2}
  baseline: false
policy: {initial: set}
telemetry: {log_level: error}
"""


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(app, "cluster-agent", list(words))
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.heavy
def test_a_job_of_the_newest_decision_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text(CONFIG)
    assert typed(capsys, "run", "--config", str(config))[0] == 0
    line = last_decision(tmp_path / "state")
    assert line is not None
    name = next(iter(line["allocation"]))
    code, out, err = typed(capsys, "explain", name, "--config", str(config), "-o", "json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert [facts["workers"], facts["ps"]] == line["allocation"][name]
    assert (facts["decision"]["number"], facts["decision"]["policy"]) == (line["number"], "set")
    assert facts["steps"], "set weighed steps for it"
    code, out, _ = typed(capsys, "explain", name, "--config", str(config))
    assert code == 0
    assert "by policy" in out
    assert "What the policy believes that it gains" in out
    code, out, err = typed(capsys, "explain", "nobody", "--config", str(config))
    assert (out, err.count("\n")) == ("", 1)
    assert code != 0
    assert f"no job 'nobody' in the newest decision, number {line['number']}: it was about" in err


def test_an_agent_that_decided_nothing_yet_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text(CONFIG)
    code, out, err = typed(capsys, "explain", "1", "--config", str(config))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "holds no decision that can be read; let the agent run first" in err
