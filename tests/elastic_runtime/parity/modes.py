"""The three ways to run `script.py`; each says how its processes ended, what they noted, and what was trained."""

import json
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from forks import Forks
from launched_job import OVER, LaunchedJob
from safetensors.torch import load_file
from tiny_job import NEVER_SECONDS

from elastic_runtime.checkpoint import latest_durable, read_model
from elastic_runtime.protocol.plan import JobPhase

SCRIPT = Path(__file__).with_name("script.py")
DEADLINE_SECONDS = 200.0


@dataclass
class Run:
    """How one run came out.

    Attributes:
        ended_well: all of its processes.
        notes: what each process of the script noted.
        weights: what the first process saved; None if it did not.
        output: everything that its processes wrote, for people, and for refusals.
        checkpoint: step and weights of an elastic job's newest checkpoint.
    """

    ended_well: bool
    notes: list[dict[str, Any]]
    weights: dict[str, torch.Tensor] | None
    output: str
    checkpoint: tuple[int, dict[str, torch.Tensor]] | None = None


def alone(forks: Forks, folder: Path, case: str, device: str = "cpu") -> Run:
    """As `python script.py`."""
    return _processes(forks, folder, case, [{"DEVICE": device}])


def under_torchrun(forks: Forks, folder: Path, case: str) -> Run:
    """As `torchrun --nproc-per-node 2 script.py`: what that sets for two processes."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return _processes(forks, folder, case, [{**group, "RANK": str(rank)} for rank in range(2)])


def elastic(forks: Forks, folder: Path, case: str, device: str = "cpu") -> Run:
    """As `elastic-run --ps 1 --workers 2 script.py`, with the test as the launcher."""
    environment = {"CASE": case, "DEVICE": device, "ELASTIC_GRACE_SECONDS": str(NEVER_SECONDS)}
    with LaunchedJob(forks, folder, 1, 2, environment, script=SCRIPT, settings={"checkpoint_seconds": 1e6}) as job:
        job.until(lambda: job.view.phase in OVER and not any(t.startswith("worker") for t in job.pids), "the end")
        codes = [code for task, codes in job.codes.items() for code in codes if task.startswith("worker")]
        finished = job.view.phase is JobPhase.FINISHED
        failure = job.view.failure
    run = _run(folder, finished and codes == [0, 0], failure)
    manifest = latest_durable(folder / "checkpoints")
    run.checkpoint = (manifest.step, read_model(manifest)) if manifest is not None else None
    return run


MODES = {"alone": alone, "torchrun": under_torchrun, "elastic": elastic}


def _processes(forks: Forks, folder: Path, case: str, environments: list[dict[str, str]]) -> Run:
    everybodys = {"CASE": case, "FOLDER": str(folder)}
    pids = [
        forks.start(str(SCRIPT), [], {**everybodys, **own}, folder / f"{number}.log")
        for number, own in enumerate(environments)
    ]
    deadline = time.monotonic() + DEADLINE_SECONDS
    while any(forks.exit_code(pid) is None for pid in pids):
        assert time.monotonic() < deadline, _run(folder, False).output
        time.sleep(0.01)
    return _run(folder, all(forks.exit_code(pid) == 0 for pid in pids))


def _run(folder: Path, ended_well: bool, failure: str = "") -> Run:
    notes = [json.loads(path.read_text()) for path in sorted(folder.glob("notes-*.json"))]
    saved = folder / "model.safetensors"
    output = "\n".join([failure, *(log.read_text(errors="replace") for log in sorted(folder.glob("*.log")))])
    return Run(ended_well, notes, load_file(saved) if saved.exists() else None, output)
