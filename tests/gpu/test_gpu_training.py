"""A model on a GPU trains as on the processor, alone and elastic; a job there is resized, suspended and resumed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from forks import Forks
from modes import alone, elastic
from real_jobs import RealJob

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
PICTURES = Path(__file__).with_name("train_pictures.py")
CASES = ["plain", "halves_of_its_own", "evaluated", "left_after_a_step"]
MODES = {"alone": alone, "elastic": elastic}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
def test_it_trains_there_as_on_the_processor(forks: Forks, tmp_path: Path, case: str, mode: str) -> None:
    """In float64, whose rounding is far below what a training that differs would differ by."""
    runs = []
    for device in ("cpu", "cuda"):
        folder = tmp_path / device
        folder.mkdir()
        runs.append(MODES[mode](forks, folder, case, device))
        assert runs[-1].ended_well, runs[-1].output
    here, there = runs
    assert here.weights is not None
    assert there.weights is not None
    for name, value in here.weights.items():
        torch.testing.assert_close(there.weights[name].cpu(), value, rtol=1e-9, atol=1e-11, msg=name)
    for mine, other in zip(there.notes, here.notes, strict=True):
        assert mine["step"] == other["step"]
        assert [step for step, _ in mine["evaluated"]] == [step for step, _ in other["evaluated"]]
        assert [loss for _, loss in mine["evaluated"]] == pytest.approx([loss for _, loss in other["evaluated"]])


def test_an_asynchronous_job_trains_there(forks: Forks, tmp_path: Path) -> None:
    run = elastic(forks, tmp_path, "asynchronous_steps", "cuda")
    assert run.ended_well, run.output
    assert run.weights is not None
    assert sum(sum(note["steps"]) for note in run.notes) == 44 + 8, "an epoch of six batches, and one of the next"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[RealJob]:
    with RealJob(tmp_path, "pictures") as job:
        yield job
    job.leaves_nobody()


def test_a_job_there_is_resized_suspended_and_resumed_and_has_learned(job: RealJob, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job.launch("--ps", "1", "--workers", "1", "--name", job.name, str(PICTURES), "100", str(go))
    job.steps_on()
    for servers, workers in ((2, 2), (1, 2), (2, 1)):
        assert job.ask("resize", "--ps", str(servers), "--workers", str(workers))["state"] == "done"
        status = job.steps_on()
        assert status["size"] == {"ps": servers, "workers": workers}
    job.kill(job.members(status)["worker"][0])
    job.steps_on()
    assert job.ask("suspend")["state"] == "done"
    job.wait_for("suspension", lambda status: status["phase"] == "suspended" and not status["tasks"])
    assert not set(gpu_processes()) & set(job.processes()), "suspended it holds nothing of the GPU's memory"
    assert job.ask("resume", "--workers", "2")["state"] == "done"
    job.steps_on()
    go.touch()
    assert job.end() == 0, job.output()
    trained = re.search(r"trained (\d+) right (\d\.\d+)", job.output())
    assert trained is not None, job.output()
    assert int(trained[1]) == 800
    assert float(trained[2]) > 0.9


def gpu_processes() -> list[int]:
    """Numbers of all processes that hold memory of a GPU, as the driver tells them."""
    words = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    said = subprocess.run(words, check=True, capture_output=True, text=True, timeout=100).stdout
    return [int(line) for line in said.splitlines() if line.strip().isdigit()]
