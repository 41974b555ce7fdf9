"""An interrupted `policy-net train`: what it keeps, what it says, and that it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from foundation import command_line
from foundation.errors import INTERRUPTED
from policy_net.cli import app
from policy_net.exchange.policy_file import PolicyFile, read_policy_file
from policy_net.laboratory.training_checkpoint import EVERY_SECONDS, TrainingCheckpoint, read_checkpoint
from policy_net.laboratory.training_runs import RunRecorder, read_run
from policy_net.set_policy.policy import default_set_file

FEW = str(Path(__file__).with_name("few.yaml"))
DL2 = ["--workload", "dl2:jobs=3,seed=1", "--jobs-per-batch", "3", "--steps", "6", "--config", FEW]
SET = ["--policy", "set", "--from", "set", "--workload", "dl2:jobs=2,seed=1", "--steps", "3"]


def train(*words: str) -> int:
    return command_line.run(app, "policy-net", ["train", *words])


def interrupt_after(figures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, as so many figures have been written."""
    reported, point = 0, RunRecorder.point

    def counted(self: RunRecorder, figure: str, step: int, steps: int, value: float) -> None:
        nonlocal reported
        point(self, figure, step, steps, value)
        reported += 1
        if reported == figures:
            raise KeyboardInterrupt

    monkeypatch.setattr(RunRecorder, "point", counted)


@pytest.mark.heavy
@pytest.mark.parametrize(("words", "most"), [(DL2, 6), (SET, 3)], ids=["dl2", "set"])
def test_what_was_interrupted_is_kept_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], most: int
) -> None:
    out, run = tmp_path / "x.safetensors", tmp_path / "run"
    typed = [*words, "--out", str(out), "--run", str(run)]
    with monkeypatch.context() as patched:
        interrupt_after(3, patched) if most == 6 else interrupt_after(2, patched)
        assert train(*typed) == INTERRUPTED
    said = " ".join(capsys.readouterr().err.split())
    kept = read_checkpoint(run)
    assert kept is not None
    assert 0 < kept.done < most
    assert f"after {kept.done} of {most} steps; the same command with --resume goes on" in said
    assert not out.exists()
    assert kept.spent_seconds > 0.0
    assert train(*typed) == 2, "not without being asked"
    assert train(*typed, "--seed", "9", "--resume") == 2
    assert "was begun with world.seed 0, not 9" in capsys.readouterr().err
    assert train(*typed, "--resume") == 0
    card = read_policy_file(out).card
    assert card.get("updates", card.get("generations")) == most
    assert read_run(run).final["seconds"] > kept.spent_seconds, "both legs"
    of_steps, *others = read_run(run).curves
    assert [step for step, _ in of_steps.points] == list(range(1, most + 1))
    assert all(curve.points[-1][0] == most for curve in others)
    assert read_checkpoint(run) is None
    assert train(*typed, "--resume") == 2
    assert "has ended" in capsys.readouterr().err


def test_without_a_folder_nothing_is_kept_and_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("policy_net.laboratory.commands.train_dl2.train_in_groups", interrupted)
    assert train(*DL2, "--out", str(tmp_path / "x.safetensors")) == INTERRUPTED
    assert "nothing is kept: with --run DIR" in capsys.readouterr().err
    assert train(*DL2, "--out", str(tmp_path / "x.safetensors"), "--resume") == 2
    assert "--resume: which training is to go on?" in capsys.readouterr().err


def test_checkpoints_are_written_now_and_then_and_one_that_cannot_be_costs_no_training(tmp_path: Path) -> None:
    now = 0.0
    start = default_set_file()
    checkpoint = TrainingCheckpoint(tmp_path, lambda: now)
    checkpoint.begin(start)
    changed = PolicyFile(start.spec, np.ones_like(start.weights), start.card, start.priors)
    checkpoint.offer(1, lambda: changed)
    assert checkpoint.kept == 0
    now += EVERY_SECONDS
    checkpoint.offer(2, lambda: changed)
    kept = read_checkpoint(tmp_path)
    assert kept is not None
    assert (kept.done, checkpoint.kept) == (2, 2)
    assert np.array_equal(kept.policy.weights, changed.weights)
    assert np.array_equal(kept.start.weights, start.weights)
    assert dict(kept.policy.card) == json.loads(json.dumps(dict(start.card)))
    (tmp_path / "file").write_text("x")
    nowhere = TrainingCheckpoint(tmp_path / "file", lambda: now)
    nowhere.begin(start)
    nowhere.offer(3, lambda: changed)
    assert nowhere.kept is None


def test_the_seconds_of_every_leg_are_added_up(tmp_path: Path) -> None:
    now = 100.0
    start = default_set_file()
    first = TrainingCheckpoint(tmp_path, lambda: now)
    first.begin(start)
    now += 30.0
    first.offer(4, lambda: start)
    kept = read_checkpoint(tmp_path)
    assert kept is not None
    assert kept.spent_seconds == 30.0
    now = 5.0  # another process, whose clock began elsewhere
    second = TrainingCheckpoint(tmp_path, lambda: now)
    recorder = RunRecorder(tmp_path, {}, lambda: now)
    second.before_seconds = recorder.before_seconds = kept.spent_seconds
    now += 25.0
    second.offer(6, lambda: start)
    kept = read_checkpoint(tmp_path)
    assert kept is not None
    assert kept.spent_seconds == 55.0
    now += 2.0
    recorder.end({})
    assert read_run(tmp_path).final["seconds"] == 57.0
