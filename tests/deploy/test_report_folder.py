"""The folder of a demonstration's report: looked at before all starts, made when there is something to put there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

import deploy.kube.__main__ as kube
import deploy.local.demo as local
import deploy.train.__main__ as train
from deploy.demonstration import frame
from foundation.locks import FileLock
from policy_net.errors import BadInput


def run_local(folder: Path, report: Path) -> None:
    local.demo(**vars(local.DemoOptions(fleet="language", jobs=6, run_folder=folder / "run", report_folder=report)))


def run_train(folder: Path, report: Path) -> None:
    train.demo_train(**vars(train.TrainOptions(1, 0.05, 10.0, folder / "run", report)))


def run_kube(folder: Path, report: Path) -> None:
    kube.demo_kube(**vars(kube.KubeOptions(1, 0, 30.0, folder / "run", report)))


@pytest.fixture(params=[(local, run_local), (train, run_train), (kube, run_kube)], ids=["local", "train", "kube"])
def demo(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, Path], None]:
    """One of the three, interrupted as soon as it has looked at its folders."""
    module, run = request.param

    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "shipped_start", interrupted)
    monkeypatch.setattr(frame.signal, "signal", lambda *_: None)  # the tests' own stay
    monkeypatch.setattr(kube, "Kubectl", lambda *_: None)  # as if it were there
    return run


def test_an_early_interrupt_leaves_no_empty_folder_behind(demo: Callable[[Path, Path], None], tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        demo(tmp_path, tmp_path / "reports" / "first")
    assert (tmp_path / "run").exists()
    assert not (tmp_path / "reports").exists()
    (tmp_path / "report").mkdir()
    with pytest.raises(KeyboardInterrupt):
        demo(tmp_path, tmp_path / "report")
    assert (tmp_path / "report").exists(), "which was there before"


def test_nor_does_a_refusal(demo: Callable[[Path, Path], None], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with FileLock(tmp_path / "run" / ".lock"), pytest.raises(BadInput, match="another demo is running"):
        demo(tmp_path, tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_a_folder_that_cannot_be_is_refused_before_anything_is_made(
    demo: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    (tmp_path / "report").write_text("a file", encoding="utf-8")
    with pytest.raises(BadInput, match="report"):
        demo(tmp_path, tmp_path / "report")
    assert not (tmp_path / "run").exists()
