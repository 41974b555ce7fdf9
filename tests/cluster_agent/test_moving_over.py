"""An operator moves over: the log of the scheduler that runs now becomes the policy that takes over, and runs."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from agent_fakes import policy_bytes

from cluster_agent.agent import run_agent
from cluster_agent.recording.log_reading import CURRENT, read_log
from cluster_agent.settings import AgentSettings
from foundation import command_line as cli_errors
from policy_net.cli import app
from policy_net.exchange.policy_file import read_policy_file
from policy_net.set_policy.policy import default_set_file

Captured = pytest.CaptureFixture[str]


def settings(folder: Path, name: str, policy: str) -> AgentSettings:
    return AgentSettings.model_validate(
        {
            "cluster": name,
            "state_dir": folder / name,
            "backend": {
                "workloads": [{"source": "dl2:jobs=40,mix=resnet-50+wlm+dssm+inception-bn,sizes=varied,seed=3"}],
                "environment": {"nodes": 10, "speed_noise": 0.1},
                "baseline": False,
            },
            "policy": {"initial": policy},
        }
    )


def train(*words: str) -> int:
    return cli_errors.run(app, "policy-net", ["train", *words])


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("before")
    run_agent(settings(folder, "north", "optimus"), threading.Event())
    return folder / "north" / CURRENT


def agreement(card: dict[str, Any], when: str) -> float:
    return float(card[f"agreement_{when}"]["task_overlap"])


def test_the_log_of_the_scheduler_so_far_becomes_the_policy_that_takes_over(
    log: Path, tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "moved.safetensors"
    capsys.readouterr()
    assert train("--policy", "set", "--imitate", str(log), "--out", str(out)) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "not learned from" in said
    assert "within reach" in said
    content = read_policy_file(out)
    card = dict(content.card)
    # How near the shipped policy is to begin with differs from one file to the next.
    assert agreement(card, "after") > agreement(card, "before") + 0.02
    assert (card["imitated"], card["logged_decisions"]) == (CURRENT, len(list(read_log(log))))
    assert len(card["imitated_digest"]) == len(card["parent"]) == 64
    assert content.spec == default_set_file().spec
    run_agent(settings(tmp_path, "after", str(out)), threading.Event())
    assert json.loads((tmp_path / "after" / "summary.json").read_text())["finished"]


@pytest.mark.heavy
def test_a_dl2_policy_learns_from_a_log_too_and_goes_on_by_reinforcement(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "dl2.safetensors"
    words = ("--imitate", str(log), "--imitation-steps", "150", "--jobs-per-batch", "12", "--out", str(out))
    assert train(*words) == 0
    card = dict(read_policy_file(out).card)
    assert agreement(card, "after") > agreement(card, "before")
    assert "updates" not in card
    assert train(*words, "--workload", "dl2:jobs=3,seed=1", "--steps", "2") == 0
    assert read_policy_file(out).card["updates"] == 2


def test_an_imitation_goes_on_by_evolution_and_keeps_what_it_began_with_unless_that_pays(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("policy_net.laboratory.commands.train_set.VALIDATION_WORLDS", 2)
    imitated, evolved = tmp_path / "imitated.safetensors", tmp_path / "evolved.safetensors"
    words = ("--policy", "set", "--imitate", str(log))
    assert train(*words, "--out", str(imitated)) == 0
    assert train(*words, "--workload", "dl2:jobs=4,seed=1", "--steps", "1", "--out", str(evolved)) == 0
    content = read_policy_file(evolved)
    assert content.card["generations"] == 1
    same = content.weights.tobytes() == read_policy_file(imitated).weights.tobytes()
    assert same != content.card["residual_published"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--policy", "set", "--imitate", "LOG", "--steps", "1"), "--workload is missing"),
        (("--imitate", "drf"), "--workload is missing"),
        (("--policy", "set", "--imitate", "LOG", "--from", "DL2"), "use a set policy"),
        (("--policy", "set", "--imitate", "TEXT"), "line 1: no JSON"),
        (("--policy", "set", "--imitate", "SHORT"), "at least 20"),
    ],
)
def test_what_cannot_be_imitated_is_one_line(
    log: Path, tmp_path: Path, capsys: Captured, words: tuple[str, ...], says: str
) -> None:
    files = {"LOG": log, "DL2": tmp_path / "dl2", "TEXT": tmp_path / "text", "SHORT": tmp_path / "short"}
    files["DL2"].write_bytes(policy_bytes())
    files["TEXT"].write_text("hello\n")
    files["SHORT"].write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:6]))
    capsys.readouterr()
    assert train(*(str(files.get(word, word)) for word in words), "--out", str(tmp_path / "out")) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert says in error
    assert not (tmp_path / "out").exists()
