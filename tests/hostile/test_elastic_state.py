"""Every file in an elastic job's folder, damaged in every way: said in one line, and no checkpoint is lost by it."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import elastic_rows
import pytest
import structlog
import torch
from damage import DAMAGE, files_of
from hostile_job import LAYOUT, HostileJob, make_job

from elastic_runtime.checkpoint.catalog import folder_of
from elastic_runtime.checkpoint.manifest import write_manifest
from elastic_runtime.checkpoint.writer import ShardWriter
from elastic_runtime.coordinator.__main__ import parse, serve
from elastic_runtime.errors import ElasticError
from elastic_runtime.launcher.job_status import write_state
from elastic_runtime.launcher.supervisor import Supervisor
from elastic_runtime.model.block_state import BlockState
from elastic_runtime.model.layout import Layout
from elastic_runtime.model.optimizers import SGD
from foundation.command_line import run

NAME = "digits"
LONGEST_LINE = 1100
BEGAN = f"the coordinator served, and {elastic_rows.STARTED}"
STEPS = (10, 20)
OWN_FILES = (
    "job.json",
    "token",
    "coordinator.json",
    "coordinator/journal",
    "coordinator/journal.lock",
    "state.json",
    "lock",
)
"""Of the folder, beside the checkpoints; a new one needs a place here, or is not damaged."""
LOOSE = {"coordinator.json", "coordinator/journal.lock", "state.json", "lock"}
"""Files on which nothing depends but what is shown: a job without one of them is resumed."""
LOCKS = {"coordinator/journal.lock", "lock"}
"""Files of which nobody reads what they hold."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that ran, has two checkpoints, and was stopped."""
    base = tmp_path_factory.mktemp("state")
    (base / "train.py").touch()
    folder = make_job(base / "jobs", base / "train.py", NAME)
    layout, optimizer = Layout.from_json(LAYOUT), SGD(lr=0.1)
    for step in STEPS:
        place = folder_of(folder.checkpoint_folder, step)
        writer = ShardWriter(place, "ps-0", layout, optimizer, range(len(layout.blocks)))
        for block in layout.blocks:
            writer.add(BlockState(block.index, step, torch.zeros(block.stop - block.start), {}))
        write_manifest(place, step, layout, optimizer, [writer.finish()], {})
    running = HostileJob(folder)
    write_state(folder, running.client.status())
    running.close()
    return folder.path


@pytest.fixture(autouse=True)
def _a_coordinator_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A launcher starts the coordinator, in this process and for an instant, and no tasks."""

    def start(self: Supervisor, first_request: object = None) -> None:
        self._end_everything()
        stopped = threading.Event()
        stopped.set()
        serve(parse(self._programs.coordinator("127.0.0.1:0", None)[3:]), stopped)
        raise ElasticError(BEGAN)

    monkeypatch.setattr(Supervisor, "run", start)
    yield
    structlog.reset_defaults()


@dataclass
class Said:
    """How a command ended."""

    code: int
    out: str
    err: str

    def faults(self, codes: set[int]) -> list[str]:
        """What is wrong with it."""
        if self.code == 0:
            json.loads(self.out)
            return []
        lines = self.err.splitlines()
        if BEGAN in self.err:
            return []
        if self.code not in codes:
            return [f"exit code {self.code}: {self.err[-300:]}"]
        if len(lines) != 1 or len(self.err) > LONGEST_LINE or not lines[0].isprintable() or "Traceback" in self.err:
            return [f"said {self.err[:400]!r}"]
        return []


class Commands:
    """Types them, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, jobs: Path, *words: str) -> Said:
        self._capsys.readouterr()
        code = run(elastic_rows.APP, elastic_rows.PROGRAM, [*words[:1], "--folder", str(jobs), *words[1:]])
        said = self._capsys.readouterr()
        lines = said.err.splitlines(keepends=True)
        # What a launcher says while it works is no error.
        return Said(code, said.out, "".join(line for line in lines if not line.startswith("elastic-run: job ")))


def copies(job: Path, target: Path, name: str) -> dict[str, Path]:
    """A copy of the job for every damage of a file, each in a folder of its own."""
    made = {}
    for kind, damage in DAMAGE.items():
        if name in LOCKS and kind not in ("emptied", "random", "a-folder", "gone"):
            continue
        made[kind] = target / kind / NAME
        shutil.copytree(job, made[kind])
        damage(made[kind] / name)
    return made


def kept(folder: Path) -> dict[str, bytes]:
    """What must not change: checkpoints."""
    return {name: (folder / name).read_bytes() for name in files_of(folder) if name.startswith("checkpoints/")}


def journal_of(folder: Path) -> bytes:
    """The journal up to the room behind it; empty if there is none."""
    file = folder / "coordinator" / "journal"
    return file.read_bytes().rstrip(b"\0") if file.is_file() else b""


def test_every_file_of_a_job_is_damaged(job: Path) -> None:
    there = {name for name in files_of(job) if not name.startswith(("checkpoints/", "logs/"))}
    assert there == set(OWN_FILES), "a new file in a job's folder needs a place in OWN_FILES"


@pytest.mark.parametrize("name", OWN_FILES)
def test_a_damaged_file_is_said_in_one_line(
    name: str, job: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    typed = Commands(capsys)
    wrong = []
    for kind, folder in copies(job, tmp_path, name).items():
        before = journal_of(folder)
        listed = typed(folder.parent, "list", "-o", "json")
        if listed.code != 0 or len(json.loads(listed.out)) != (folder / "job.json").exists():
            wrong.append(f"{kind}: list: {listed}")
        wrong += [
            f"{kind}: status: {fault}" for fault in typed(folder.parent, "status", NAME, "-o", "json").faults({2})
        ]
        said = typed(folder.parent, "resume", NAME)
        wrong += [f"{kind}: resume: {fault}" for fault in said.faults({2})]
        if name in LOOSE and kind != "a-folder" and BEGAN not in said.err:
            wrong.append(f"{kind}: not resumed: {said.err}")
        if BEGAN not in said.err and not journal_of(folder).startswith(before):
            wrong.append(f"{kind}: resume was refused, and changed the journal")
        if kept(folder) != kept(job):
            wrong.append(f"{kind}: checkpoints are not what they were")
    assert not wrong, f"{name}:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    "name",
    [f"checkpoints/step-00000000{step}/{file}" for step in STEPS for file in ("manifest.json", "ps-0.safetensors")],
)
def test_a_damaged_checkpoint_is_passed_over_and_left_as_it_is(
    name: str, job: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "train.py").touch()
    wrong = []
    typed = Commands(capsys)
    for kind, folder in copies(job, tmp_path, name).items():
        for step in STEPS:
            if f"{step}/" not in name:
                shutil.rmtree(folder / "checkpoints" / f"step-00000000{step}")
        before = kept(folder)
        said = typed(
            tmp_path / "new",
            "run",
            "--restore",
            "--checkpoints",
            str(folder / "checkpoints"),
            str(tmp_path / "train.py"),
        )
        wrong += [f"{kind}: {fault}" for fault in said.faults({2})]
        if BEGAN in said.err:
            wrong.append(f"{kind}: taken")
        if kept(folder) != before:
            wrong.append(f"{kind}: changed")
    assert not wrong, f"{name}:\n" + "\n".join(wrong)
