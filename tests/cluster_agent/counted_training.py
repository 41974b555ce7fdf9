"""Trainings that tell whether each sample was trained once: real jobs of seconds, which go on until they are let go.

Each sample of the elastic jobs has weights of its own, and a step adds one to those of its samples: at the end each
weight is the number of times that its sample was trained, exactly, as all is in powers of two. Every process holds a
lock on a file while it lives, which says what it was given.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS = ("ps", "ring", "script")
SAMPLES = 64
EPOCHS = 360
"""With a quarter of a second a step: three minutes, also on a busy machine longer than its kills, unless let go."""

_COMMON = """
import fcntl, json, os, pathlib, sys, time
here, name = pathlib.Path(__file__).parent, sys.argv[1]
let_go = here / "let-go" / name
(here / "let-go").mkdir(exist_ok=True)
(here / "lives").mkdir(exist_ok=True)
life = os.open(here / "lives" / f"{name}.{os.getpid()}", os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(life, fcntl.LOCK_EX)
def tell(steps):
    gpus = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    line = json.dumps({"job": name, "gpus": gpus, "steps": steps})
    os.pwrite(life, line.ljust(200).encode(), 0)
def came_out(**what):
    with (here / f"{name}.result").open("a") as results:
        results.write(json.dumps(what) + "\\n")
tell(0)
"""

ELASTIC = (
    _COMMON
    + f"""
import torch
import elastic_runtime as elastic
model = torch.nn.Linear({SAMPLES}, 64, bias=False)  # several blocks, one for each server
torch.nn.init.zeros_(model.weight)
data = (torch.eye({SAMPLES}), torch.zeros({SAMPLES}))
job = elastic.join(model, elastic.SGD(lr=32.0), data, global_batch=32, epochs={EPOCHS}, seed=0)
for number, batch in enumerate(job):
    if not let_go.exists():
        time.sleep(0.25)
    job.step(-model(batch.data[0]).mean(dim=0).sum())
    tell(number + 1)
if job.finished and job.is_first:
    came_out(least=float(model.weight.min()), most=float(model.weight.max()))
"""
)

PLAIN = (
    _COMMON
    + """
steps = 0
while not let_go.exists():
    time.sleep(0.1)
    steps += 1
    tell(steps)
came_out(steps=steps)
"""
)


@dataclass(frozen=True, slots=True)
class Life:
    """A living process of a job's script: what it was given, and how many steps it has made."""

    process: str
    job: str
    gpus: tuple[str, ...]
    steps: int


def write_scripts(folder: Path) -> None:
    """Put both scripts where `job_content` expects them."""
    (folder / "elastic.py").write_text(ELASTIC, encoding="utf-8")
    (folder / "plain.py").write_text(PLAIN, encoding="utf-8")


def job_content(kind: str, name: str) -> dict[str, Any]:
    """A job file; each of its workers takes a core and a GPU."""
    content: dict[str, Any] = {"name": name, "modelType": kind, "args": [name], "checkpointSeconds": 2}
    worker = {"cpu": 1, "gpu": 1}
    if kind == "script":
        return content | {"script": "plain.py", "worker": worker | {"replicas": 1}}
    content |= {"script": "elastic.py", "work": {"epochs": EPOCHS}, "worker": worker | {"min": 1, "max": 2}}
    if kind == "ring":
        return content | {"communication": "AllReduce"}
    return content | {"ps": {"min": 1, "max": 2, "cpu": 0.5}}


def rival_content(name: str) -> dict[str, Any]:
    """A script that takes so much that the other job has to shrink."""
    worker = {"replicas": 1, "cpu": 2.5, "gpu": 1}
    return {"name": name, "modelType": "rival", "args": [name], "script": "plain.py", "worker": worker}


def let_go(folder: Path, name: str) -> None:
    """Have a job come to its end without delay."""
    (folder / "let-go").mkdir(exist_ok=True)
    (folder / "let-go" / name).touch()


def lives(folder: Path, name: str = "") -> Iterator[Life]:
    """The processes of a job's script, or of all jobs', that live now."""
    for path in (folder / "lives").glob(f"{name or '*'}.*"):
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = os.pread(file.fileno(), 4096, 0)
                if text:
                    said = json.loads(text)
                    yield Life(path.name, said["job"], tuple(said["gpus"]), said["steps"])


def problem_of(folder: Path, kind: str, name: str) -> str:
    """What is wrong with what a job came to that is done; empty if every sample was trained once an epoch."""
    path = folder / f"{name}.result"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    if len(lines) != 1:
        return f"{name}: it came to its end {len(lines)} times"
    if kind == "script":
        return ""
    result = json.loads(lines[0])
    exact = result["least"] == result["most"] == EPOCHS
    return "" if exact else f"{name}: its samples were trained {result['least']} to {result['most']} times of {EPOCHS}"
