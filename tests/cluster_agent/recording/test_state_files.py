import os
from pathlib import Path

import pytest

from cluster_agent.cli import app
from cluster_agent.errors import BadAgentConfig, StateDamaged
from cluster_agent.recording.state_files import lock_folder, read_json
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
    held = lock_folder(tmp_path / "state")
    with pytest.raises(BadAgentConfig, match=rf"held by another agent \(process {os.getpid()}\)"):
        lock_folder(tmp_path / "state")
    held.release()
    lock_folder(tmp_path / "state").release()


def test_a_second_agent_is_refused_in_one_line_and_changes_nothing(tmp_path: Path, capsys) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text(CONFIG)
    held = lock_folder(tmp_path / "state")
    command = ["run", "--config", str(config)]
    assert run_command_line(app, "cluster-agent", command) == 2
    error = capsys.readouterr().err
    assert "state_dir" in error
    assert len(error.splitlines()) == 1
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["lock"]
    held.release()
    assert run_command_line(app, "cluster-agent", command) == 0
    lock_folder(tmp_path / "state").release()


def test_nobody_but_its_own_user_reads_an_agents_state(tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text(CONFIG)
    state = tmp_path / "state"
    before = os.umask(0)
    try:
        for _ in range(2):
            assert run_command_line(app, "cluster-agent", ["run", "--config", str(config)]) == 0
            assert state.stat().st_mode & 0o777 == 0o700
            modes = {str(path.relative_to(state)): path.stat().st_mode & 0o777 for path in state.rglob("*")}
            assert {"decisions.jsonl", "lock"} <= modes.keys()
            assert set(modes.values()) <= {0o600, 0o700}, modes
            state.chmod(0o777)  # as an earlier agent left it
            (state / "decisions.jsonl").chmod(0o666)
    finally:
        os.umask(before)


def test_a_state_file_that_is_a_pipe_is_damage_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "memory.json")
    with pytest.raises(StateDamaged, match=r"memory\.json: cannot be read \(.*it is a pipe"):
        read_json(tmp_path / "memory.json")
