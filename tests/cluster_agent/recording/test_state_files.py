import os
from pathlib import Path

import pytest

from cluster_agent.cli import app
from cluster_agent.errors import BadConfig
from cluster_agent.recording.state_files import hold_folder
from foundation.command_line import run as run_command_line

CONFIG = """
cluster: alpha
state_dir: state
backend:
  workloads: [{source: "dl2:jobs=3,seed=1"}]
  environment: {nodes: 8}
  baseline: false
policy: {initial: drf}
telemetry: {log_level: error}
"""


def test_a_state_directory_has_one_agent_at_a_time(tmp_path: Path) -> None:
    held = hold_folder(tmp_path / "state")
    with pytest.raises(BadConfig, match=rf"held by another agent \(process {os.getpid()}\)"):
        hold_folder(tmp_path / "state")
    held.release()
    hold_folder(tmp_path / "state").release()


def test_a_second_agent_is_refused_in_one_line_and_changes_nothing(tmp_path: Path, capsys) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text(CONFIG)
    held = hold_folder(tmp_path / "state")
    command = ["run", "--config", str(config)]
    assert run_command_line(app, "cluster-agent", command) == 2
    error = capsys.readouterr().err
    assert "state_dir" in error
    assert len(error.splitlines()) == 1
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["lock"]
    held.release()
    assert run_command_line(app, "cluster-agent", command) == 0
    hold_folder(tmp_path / "state").release()
