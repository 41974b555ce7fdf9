"""`cluster-agent run --check`: a configuration and what it names are read, and nothing is begun."""

from pathlib import Path

import pytest

from cluster_agent.cli import app
from foundation.command_line import run

GOOD = """
cluster: alpha
state_dir: state
backend:
  workloads: [{source: "dl2:jobs=3,seed=1"}]
  environment: {nodes: 8}
policy: {initial: drf}
telemetry: {log_level: error}
"""
LEARNER = "learner: {address: 127.0.0.1:1}\n"
KUBERNETES = "{kind: kubernetes, kubeconfig: kc.yaml}"


def checked(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    (folder / "agent.yaml").write_text(text)
    code = run(app, "cluster-agent", ["run", "--check", "--config", str(folder / "agent.yaml")])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("more", ["", LEARNER], ids=["alone", "with a learner that is away"])
def test_a_sound_configuration_is_checked_and_nothing_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str
) -> None:
    code, out, err = checked(tmp_path, GOOD + more, capsys)
    assert (code, err) == (0, "")
    assert "policy drf" in out
    assert "an agent can run on it; nothing was started" in out
    assert [path.name for path in tmp_path.iterdir()] == ["agent.yaml"]


def test_what_a_check_logs_is_words_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "cluster: alpha\nstate_dir: state\nbackend: {kind: local}\npolicy: {initial: drf}\n"
    code, out, err = checked(tmp_path, text, capsys)
    assert (code, "backend local" in out) == (0, True)
    assert not [line for line in err.splitlines() if line.startswith("{")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD.replace("policy:", "polici:"), "unknown setting polici"),
        (GOOD.replace("initial: drf", "initial: nowhere.safetensors"), "nowhere.safetensors"),
        (GOOD.replace("initial: drf", "initial: agent.yaml"), "agent.yaml"),
        (GOOD.replace("dl2:jobs=3,seed=1", "nowhere.csv"), "nowhere.csv"),
        (GOOD.replace("state_dir: state", "state_dir: agent.yaml/state"), "setting state_dir: "),
        (GOOD + "learner: {address: 127.0.0.1:1, enrollment_file: no.enrollment}\n", "learner.enrollment_file"),
        (
            f"cluster: alpha\nstate_dir: state\npolicy: {{initial: drf}}\nbackend: {KUBERNETES}\n",
            "kc.yaml",
        ),
    ],
)
def test_what_a_start_would_refuse_a_check_refuses_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    code, out, err = checked(tmp_path, text, capsys)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert says in err
    assert [path.name for path in tmp_path.iterdir()] == ["agent.yaml"]
