"""All-reduce processes stop after a common step, and others, of whatever number, go on from there as if nothing was."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from forks import Forks
from reserved_port import ReservedPort
from safetensors.torch import load_file

from elastic_runtime.checkpoint.rank_files import FOLDER_VARIABLE, STORE_VARIABLE, RankFiles, RankProgress, rank_files
from elastic_runtime.errors import CheckpointError

SCRIPT = """
import sys, torch
from safetensors.torch import save_file
from torch import nn
import elastic_runtime as elastic

torch.manual_seed(4)
layers = [nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)]
generator = torch.Generator().manual_seed(0)
data = torch.randn(22, 5, generator=generator), torch.randint(0, 3, (22,), generator=generator)
model = nn.Sequential(*layers)
job = elastic.join(model, elastic.SGD(lr=0.1, momentum=0.9, lr_at={3: 0.05}), data, global_batch=7, epochs=3, seed=5)
for batch in job:
    inputs, labels = batch.data
    job.step(nn.functional.cross_entropy(model(inputs), labels))
if job.finished and job.is_first:
    save_file(model.state_dict(), sys.argv[1])
"""


DEADLINE_SECONDS = 280.0


def run(forks: Forks, folder: Path, processes: int, model: Path, files: Path | None, store: str = "") -> None:
    """All processes of one run, to their end."""
    port = ReservedPort()
    group = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port.port)}
    if files is not None:
        group |= {FOLDER_VARIABLE: str(files), STORE_VARIABLE: store}
    logs = [folder / f"{rank}.log" for rank in range(processes)]
    running = [
        forks.start(str(folder / "train.py"), [str(model)], {**group, "RANK": str(rank)}, log)
        for rank, log in enumerate(logs)
    ]
    deadline = time.monotonic() + DEADLINE_SECONDS
    while None in (codes := [forks.exit_code(pid) for pid in running]):
        assert time.monotonic() < deadline, codes
        time.sleep(0.01)
    assert codes == [0] * processes, "\n".join(log.read_text(encoding="utf-8", errors="replace") for log in logs)
    port.close()


@pytest.mark.heavy
@pytest.mark.parametrize("keeps", ["in its folder", "in a store"])
def test_processes_that_were_stopped_are_followed_by_any_number_of_others_to_the_same_model(
    forks: Forks, tmp_path: Path, keeps: str
) -> None:
    store = f"file://{tmp_path}/store" if keeps == "in a store" else ""
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    files = RankFiles(tmp_path)
    steps = []
    for processes in (2, 1, 2):
        files.stop_file.touch()
        run(forks, tmp_path, processes, tmp_path / "early", tmp_path, store)
        steps.append((files.progress().step, files.progress().samples, files.progress().processes))
    assert steps == [(1, 7, 2), (2, 14, 1), (3, 21, 2)]
    files.stop_file.unlink()
    assert not (tmp_path / "early").exists(), "none of them had finished the job"
    run(forks, tmp_path, 1, tmp_path / "resized", tmp_path, store)
    assert files.checkpoint_file.exists() is not bool(store)
    reported = files.progress()
    assert (reported.step, reported.samples, reported.epoch, reported.total_epochs, reported.finished) == (
        12,
        66,
        3.0,
        3.0,
        True,
    )
    run(forks, tmp_path, 1, tmp_path / "again", tmp_path, store)
    run(forks, tmp_path, 1, tmp_path / "straight", None)
    straight = load_file(tmp_path / "straight")
    for other in ("resized", "again"):
        torch.testing.assert_close(load_file(tmp_path / other), straight, rtol=1e-4, atol=1e-5)


@pytest.mark.heavy
def test_from_a_damaged_checkpoint_nobody_goes_on_but_from_the_one_before(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    files = RankFiles(tmp_path)
    files.stop_file.touch()
    for _ in range(2):
        run(forks, tmp_path, 1, tmp_path / "early", tmp_path)
    assert files.progress().step == 2
    whole = files.checkpoint_file.read_bytes()
    at = whole.index(bytes(load_weight(files)))
    files.checkpoint_file.write_bytes(whole[:at] + bytes(64) + whole[at + 64 :])
    run(forks, tmp_path, 1, tmp_path / "early", tmp_path)
    assert files.progress().step == 2, "one step after the one before"
    assert "checkpoint-passed-over" in (tmp_path / "0.log").read_text(encoding="utf-8")
    files.stop_file.unlink()
    run(forks, tmp_path, 1, tmp_path / "resumed", tmp_path)
    run(forks, tmp_path, 1, tmp_path / "straight", None)
    torch.testing.assert_close(load_file(tmp_path / "resumed"), load_file(tmp_path / "straight"), rtol=1e-4, atol=1e-5)


def load_weight(files: RankFiles) -> bytes:
    """The first layer's weights, as they lie in the newest checkpoint."""
    content = files.load()
    assert content is not None
    weight: torch.Tensor = content["tensors"][0]
    return weight.numpy().tobytes()


def test_a_checkpoint_that_is_none_is_named(tmp_path: Path) -> None:
    files = RankFiles(tmp_path)
    assert files.load() is None
    files.save({"step": 3, "tensors": [torch.ones(2)]})
    kept = files.load()
    assert kept is not None
    assert kept["step"] == 3
    files.checkpoint_file.write_bytes(files.checkpoint_file.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt: is no checkpoint, or damaged; no other can be used"):
        files.load()


def test_progress_is_told_every_so_often_and_at_once_where_it_matters(tmp_path: Path) -> None:
    now = 100.0
    files = RankFiles(tmp_path, checkpoint_seconds=5.0, clock=lambda: now)
    assert files.progress() == RankProgress()
    files.report(RankProgress(processes=1, step=1))
    files.report(RankProgress(processes=1, step=2))
    assert files.progress().step == 1
    files.report(RankProgress(processes=1, step=3), at_once=True)
    assert files.progress().step == 3
    now = 101.0
    files.report(RankProgress(processes=1, step=4))
    assert files.progress().step == 4
    assert not files.checkpoint_due
    now = 106.0
    assert files.checkpoint_due
    (tmp_path / "progress.json").write_text('{"unknown": 1}', encoding="utf-8")
    assert files.progress() == RankProgress()


def test_nobody_looks_after_processes_that_were_told_of_no_folder() -> None:
    assert rank_files({}) is None
