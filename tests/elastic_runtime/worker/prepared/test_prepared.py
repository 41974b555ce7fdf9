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


DRAWN = """
model = nn.Sequential(nn.Linear(5, 40), nn.Dropout(0.5), nn.Linear(40, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = elastic.prepare(model, optimizer)
seen = []
for step in elastic.steps(6):
    chosen = torch.randint(50, (8,))
    mine = elastic.rows(8)
    loss = nn.functional.cross_entropy(model(inputs[chosen][mine]), labels[chosen][mine])
    seen.append(torch.randint(1000, ()).item())  # what comes after the model has drawn
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if elastic.is_first:
        torch.rand(3)  # such as an evaluation's
sums = [float(elastic.sum(one)) for one in seen]
torch.save([seen, sums, float(model[0].weight.sum())], f"{sys.argv[1]}-{elastic.is_first}")
"""


@pytest.mark.heavy
def test_workers_draw_alike_but_for_what_the_model_draws(forks: Forks, tmp_path: Path) -> None:
    run(forks, tmp_path, DRAWN, 2)
    (first, sums, weights), (other, _, others) = (
        torch.load(tmp_path / f"trained.pt-{is_first}", weights_only=True) for is_first in (True, False)
    )
    assert first == other
    assert sums == [2 * one for one in first]
    assert weights == others
    assert len(set(first)) == len(first)


@pytest.mark.heavy
def test_numbers_that_one_worker_drew_alone_before_its_rows_are_refused(forks: Forks, tmp_path: Path) -> None:
    script = DRAWN.replace("    mine =", "    if step == 3 and elastic.is_first: torch.rand(1)\n    mine =")
    said = run(forks, tmp_path, script, 2, codes=(1, 1))
    assert "the random numbers drawn before elastic.rows are not the same in all workers" in said
