"""A script's own loop, prepared: alone it is plain PyTorch, and any number of workers train what it trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from forks import Forks
from prepared_scripts import SCRIPTS, run

from elastic_runtime.checkpoint.rank_files import RankFiles


def trained(folder: Path) -> Any:
    return torch.load(folder / "trained.pt", weights_only=True)


def largest_difference(one: Any, other: Any) -> float:
    if isinstance(one, torch.Tensor):
        return float((one.double() - other.double()).abs().max()) if one.numel() else 0.0
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        return max((largest_difference(one[key], other[key]) for key in one), default=0.0)
    if isinstance(one, list | tuple):
        assert len(one) == len(other)
        return max(map(largest_difference, one, other), default=0.0)
    return abs(one - other)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_prepared_script_trains_what_the_plain_one_trains(forks: Forks, tmp_path: Path, kind: str) -> None:
    plain, prepared = SCRIPTS[kind]
    run(forks, tmp_path, plain, 0)
    expected = trained(tmp_path)
    run(forks, tmp_path, prepared, 0)
    assert largest_difference(expected, trained(tmp_path)) == 0.0, "alone it is plain PyTorch"
    for processes in (1, 2, 3):
        run(forks, tmp_path, prepared, processes)
        assert largest_difference(expected, trained(tmp_path)) < 1e-12, f"{processes} workers"


@pytest.mark.heavy
@pytest.mark.parametrize("kind", SCRIPTS)
def test_workers_that_were_stopped_are_followed_by_any_number_of_others(
    forks: Forks, tmp_path: Path, kind: str
) -> None:
    plain, prepared = SCRIPTS[kind]
    run(forks, tmp_path, plain, 0)
    expected = trained(tmp_path)
    (tmp_path / "trained.pt").unlink()
    files = RankFiles(tmp_path)
    steps = []
    for processes in (2, 1, 3, 2):
        files.stop_file.touch()
        run(forks, tmp_path, prepared, processes, tmp_path)
        steps.append(files.progress().step)
        assert not (tmp_path / "trained.pt").exists(), "none of them had finished the job"
    assert steps == sorted(set(steps)), "each of them went on"
    files.stop_file.unlink()
    run(forks, tmp_path, prepared, 2, tmp_path)
    assert largest_difference(expected, trained(tmp_path)) < 1e-12
    assert files.progress().finished
    (tmp_path / "trained.pt").unlink()
    run(forks, tmp_path, prepared, 1, tmp_path)
    assert largest_difference(expected, trained(tmp_path)) < 1e-12, "a job that is done has its end again"
