"""Asynchronous training with real processes: it learns, its servers change while it does, and it comes to its end."""

import json
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from elastic_runtime.checkpoint import read_blocks, read_manifest, read_model
from elastic_runtime.errors import ElasticError
from elastic_runtime.launcher.job_folder import JobFolder
from elastic_runtime.launcher.job_status import job_facts
from elastic_runtime.model.layout import TensorKind
from elastic_runtime.model.sample_leases import SampleLeaseTable
from elastic_runtime.model.training import Training

pytestmark = pytest.mark.heavy
DEADLINE_SECONDS = 200.0
SCRIPT = """
import sys
import time

import torch
from torch import nn

import elastic_runtime as elastic


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 4)
    )


def pictures(count, seed):
    "8 x 8 pixels of noise, with a bright square in one of four corners, which is to be named."
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (count,), generator=generator)
    images = torch.rand(count, 1, 8, 8, generator=generator)
    for image, label in zip(images, labels):
        row, column = divmod(int(label), 2)
        image[0, 4 * row + 1 : 4 * row + 3, 4 * column + 1 : 4 * column + 3] += 0.7
    return images, labels


def accuracy(model):
    images, labels = pictures(400, seed=2)
    model.eval()
    with torch.no_grad():
        return (model(images).argmax(1) == labels).double().mean().item()


if __name__ == "__main__":
    torch.set_num_threads(1)
    model = network()
    job = elastic.join(
        model,
        elastic.SGD(lr=0.05, momentum=0.5, clip_norm=5.0),
        pictures(640, seed=1),
        worker_batch=16,
        epochs=int(sys.argv[1]),
    )
    for batch in job:
        images, labels = batch.data
        assert len(images) == 16 and batch.weight == 1.0
        time.sleep(float(sys.argv[2]))
        job.step(nn.functional.cross_entropy(model(images), labels))
    if job.finished:
        print(f"learned {accuracy(model)} in {job.global_step} of {job.total_steps}", flush=True)
"""


def order(jobs: Path, *words: str) -> None:
    done = subprocess.run(command(*words), check=False, env=environment(jobs), capture_output=True, timeout=200)
    assert done.returncode == 0, done.stderr.decode() + (jobs / "out").read_text()


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "elastic_runtime.cli", *words]


def environment(jobs: Path) -> dict[str, str]:
    return {**os.environ, "ELASTIC_JOBS": str(jobs)}


@contextmanager
def job(jobs: Path, epochs: int, pause_seconds: float = 0.0) -> Iterator[subprocess.Popen[str]]:
    script = jobs / "train.py"
    script.write_text(SCRIPT)
    words = ("run", "--ps", "1", "--workers", "2", "--name", "j", str(script), str(epochs), str(pause_seconds))
    with (jobs / "out").open("w") as output:
        launcher = subprocess.Popen(command(*words), env=environment(jobs), stdout=output, stderr=output, text=True)
    try:
        yield launcher
    finally:
        if launcher.poll() is None:
            launcher.terminate()
            launcher.wait(timeout=150)


def steps_on(jobs: Path, steps: int) -> dict[str, Any]:
    """Wait until so many more updates are done."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    first: int | None = None
    while time.monotonic() < deadline:
        try:
            status = job_facts(JobFolder(jobs / "j"), timeout_seconds=5.0)
        except ElasticError:
            status = {"phase": "unknown"}  # it is starting
        if status["phase"] == "running" and status["size"]["workers"]:
            first = status["step"] if first is None else first
            if status["step"] >= first + steps:
                return status
        time.sleep(0.05)
    raise AssertionError(f"not {steps} more steps: {status} {(jobs / 'out').read_text()}")


def test_two_workers_learn_and_each_sample_counts_once_per_epoch(tmp_path: Path) -> None:
    with job(tmp_path, epochs=6) as launcher:
        assert launcher.wait(timeout=DEADLINE_SECONDS) == 0, (tmp_path / "out").read_text()
    said = [line for line in (tmp_path / "out").read_text().splitlines() if "learned" in line]
    assert said
    assert all("in 240 of 240" in line for line in said)  # 640 samples / 16 * 6 epochs
    assert float(said[0].partition("learned ")[2].split()[0]) >= 0.9
    leases = read_manifest(newest(tmp_path)).position["leases"]
    assert (leases["next"], leases["held"], leases["returned"]) == ([6, 0], [], [])


def test_servers_and_workers_come_and_go_while_it_trains(tmp_path: Path) -> None:
    with job(
        tmp_path, epochs=1_000_000, pause_seconds=0.01
    ) as launcher:  # it leaves the processor to who comes and goes
        for servers, workers in ((2, 2), (1, 1)):
            steps_on(tmp_path, 50)
            order(tmp_path, "resize", "j", "--ps", str(servers), "--workers", str(workers), "--wait")
            status = steps_on(tmp_path, 50)
            assert (status["size"], status["mode"]) == ({"ps": servers, "workers": workers}, "asynchronous")
        order(tmp_path, "stop", "j")
        launcher.wait(timeout=150)
    manifest = read_manifest(newest(tmp_path))
    trained = {
        b.index for b in manifest.layout.blocks if manifest.layout.segments[b.segment].kind is TensorKind.PARAMETER
    }
    versions = {state.version for state in read_blocks(manifest, trained)}
    training = Training.from_json(json.dumps(manifest.position["training"]).encode())
    leases = SampleLeaseTable.from_json(training.order(), 16, json.dumps(manifest.position["leases"]).encode())
    assert versions == {leases.samples_done // 16}  # each update is applied to each block, once
    script = runpy.run_path(str(tmp_path / "train.py"))
    model = script["network"]()
    model.load_state_dict(read_model(manifest))
    assert script["accuracy"](model) >= 0.9


def newest(jobs: Path) -> Path:
    return max((jobs / "j" / "checkpoints").iterdir())
