from pathlib import Path

import pytest

from cluster_agent.cli import app
from cluster_agent.errors import BadAgentConfig
from cluster_agent.settings_file import read_settings
from foundation.command_line import run as run_command_line

GOOD = """
cluster: alpha
state_dir: state
backend:
  workloads: [{source: "dl2:jobs=3,seed=1"}]
  environment: {nodes: 8}
policy: {initial: drf}
telemetry: {log_level: error}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "agent.yaml"
    path.write_text(text)
    return path


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = run_command_line(app, "cluster-agent", arguments)
    return code, capsys.readouterr().err


def test_paths_are_taken_from_the_configurations_folder(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").touch()
    (tmp_path / "mine.safetensors").touch()
    text = GOOD.replace("initial: drf", "initial: mine.safetensors").replace("dl2:jobs=3,seed=1", "jobs.csv")
    settings = read_settings(write(tmp_path, text))
    assert settings.state_dir == tmp_path / "state"
    assert settings.policy.initial == str(tmp_path / "mine.safetensors")
    assert settings.backend.workloads[0].source == str(tmp_path / "jobs.csv")
    text = GOOD.replace("dl2:jobs=3,seed=1", "reference:t1@jobs.csv")
    assert read_settings(write(tmp_path, text)).backend.workloads[0].source == f"reference:t1@{tmp_path / 'jobs.csv'}"
    unchanged = read_settings(write(tmp_path, GOOD))
    assert (unchanged.policy.initial, unchanged.backend.workloads[0].source) == ("drf", "dl2:jobs=3,seed=1")


@pytest.mark.parametrize(
    ("source", "resolved"),
    [
        ("sacct:jobs.csv", "sacct:{0}/jobs.csv"),
        ("philly:jobs.csv@blue", "philly:{0}/jobs.csv@blue"),
        ("pai:jobs.csv@jobs.csv", "pai:{0}/jobs.csv@{0}/jobs.csv"),
        ("k8s:a@b", "k8s:{0}/a@b"),
        ("helios:nothing.csv", "helios:nothing.csv"),
        ("sacct:", "sacct:"),
    ],
)
def test_paths_of_recordings_are_taken_from_the_configurations_folder(
    tmp_path: Path, source: str, resolved: str
) -> None:
    (tmp_path / "jobs.csv").touch()
    (tmp_path / "a@b").touch()
    text = GOOD.replace("dl2:jobs=3,seed=1", source)
    assert read_settings(write(tmp_path, text)).backend.workloads[0].source == resolved.format(tmp_path)
    of_twin = f"{GOOD}learning: {{source: twin, twin: {{history: ['{source}', 'dl2:jobs=30']}}}}"
    history = read_settings(write(tmp_path, of_twin)).learning.twin.history
    assert history == (resolved.format(tmp_path), "dl2:jobs=30")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("cluster: alpha", "cluster: alpha\ncolour: red"), "unknown setting colour"),
        (("{initial: drf}", "{initial: drf, moode: greedy}"), "unknown setting policy.moode"),
        (("cluster: alpha", ""), "setting cluster is missing"),
        (("cluster: alpha", "cluster: Not A Name"), "setting cluster"),
        (("{nodes: 8}", "{nodes: many}"), "setting backend.environment.nodes = 'many'"),
        (("{nodes: 8}", "{nodes: 0}"), "backend.environment.nodes"),
        (("{initial: drf}", "{}"), "policy.initial"),
        (("{initial: drf}", "{initial: drf"), "line"),
        (("{nodes: 8}", "{nodes: 8}\n  pace: {kind: scaled}"), "speedup"),
        (
            ("{nodes: 8}", "{nodes: 8}\n  pace: {kind: backwards}"),
            "setting backend.pace.kind = 'backwards': use one of 'lockstep', 'scaled', 'free'",
        ),
        (
            ("policy:", "learner: {address: 127.0.0.1}\npolicy:"),
            "setting learner.address = '127.0.0.1': write HOST:PORT, such as 127.0.0.1:7070",
        ),
        (
            (
                "policy:",
                "learner: {address: '127.0.0.1:7070'}\nlearning: {source: twin}\n"
                "decision_log: {enabled: false}\npolicy:",
            ),
            "learning.source is twin, which replays what the decision log shows, and decision_log.enabled is off",
        ),
    ],
)
def test_a_bad_configuration_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], message: str
) -> None:
    path = write(tmp_path, GOOD.replace(*change))
    with pytest.raises(BadAgentConfig, match=r"agent\.yaml"):
        read_settings(path)
    code, said = run(["run", "--config", str(path)], capsys)
    assert code == 2
    assert message in said
    assert str(path) in said
    assert said.count("\n") == 1
    assert not (tmp_path / "state").exists(), "nothing half-written"


@pytest.mark.parametrize("text", ["", "- 1\n- 2\n", "just words"])
def test_a_file_without_settings_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    code, said = run(["run", "--config", str(write(tmp_path, text))], capsys)
    assert (code, said.count("\n")) == (2, 1)


def test_a_configuration_that_is_not_there_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(["run", "--config", str(tmp_path / "none.yaml")], capsys)
    assert code == 2
    assert "none.yaml" in said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("dl2:jobs=3,seed=1", "missing.csv"), "missing.csv"),
        (("initial: drf", "initial: nobody"), "nobody"),
        (("policy: {initial: drf}", "policy: {initial: drf}\nguard: {fallback: nobody}"), "nobody"),
    ],
)
def test_what_a_configuration_names_must_be_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], message: str
) -> None:
    code, said = run(["run", "--config", str(write(tmp_path, GOOD.replace(*change)))], capsys)
    assert (code, said.count("\n")) == (2, 1)
    assert message in said


def test_a_damaged_policy_file_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "policy.safetensors").write_bytes(b"short")
    text = GOOD.replace("initial: drf", f"initial: {tmp_path / 'policy.safetensors'}")
    code, said = run(["run", "--config", str(write(tmp_path, text))], capsys)
    assert (code, said.count("\n")) == (2, 1)
    assert "policy.safetensors" in said


def test_a_tls_file_that_is_not_there_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tls = "{ca_file: ca.pem, certificate_file: a.pem, key_file: a.key}"
    text = GOOD + f"learner: {{address: '127.0.0.1:9', tls: {tls}}}\n"
    code, said = run(["run", "--config", str(write(tmp_path, text))], capsys)
    assert (code, said.count("\n")) == (2, 1)
    assert "ca.pem" in said


def test_no_policy_and_no_learner_in_reach_is_exit_code_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    retry = "{initial_seconds: 0.01, maximum_seconds: 0.1}"
    text = GOOD.replace("{initial: drf}", "{}") + f"learner: {{address: '127.0.0.1:9', retry: {retry}}}\n"
    code, said = run(["run", "--config", str(write(tmp_path, text))], capsys)
    assert (code, said.count("\n")) == (3, 1)
    assert "not reachable" in said


def test_a_learners_file_is_said_to_be_one(tmp_path: Path) -> None:
    path = write(tmp_path, "state_dir: s\ninitial_policy: set\nlisten: 127.0.0.1:7070\n")
    with pytest.raises(BadAgentConfig, match=r"is a learner's file; `global-learner serve --config` reads it$"):
        read_settings(path)
    with pytest.raises(BadAgentConfig, match="unknown setting listen"):  # of an agent, with a word too many
        read_settings(write(tmp_path, f"{GOOD}\nlisten: 127.0.0.1:7070\n"))
