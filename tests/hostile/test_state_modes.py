"""Modes of a learner's files: nobody but its own user reads its state, whatever umask it was started with."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import hostile_learner
import numpy as np
import pytest
from hostile_learner import CALL_SECONDS, HostileLearner
from learner_makers import update
from learner_process import LearnerProcess
from state_files import pattern_of

from global_learner.errors import StateUnusable
from global_learner.loss import accept_losses
from global_learner.operator_socket import OPERATOR_SOCKET
from global_learner.recovery import LOST_FOLDER
from global_learner.settings import read_settings
from global_learner.storage.state_dir import StateDir
from policy_net.exchange.policy_file import read_policy_file
from policy_net.exchange.wire import push_request

_SERVE = """
import asyncio, sys
from pathlib import Path
import policy_net.settings
from global_learner.service.server import serve
from global_learner.settings import read_settings
policy_net.settings.CONSTANT = ""  # the file holds one
asyncio.run(serve(read_settings(Path(sys.argv[1]))))
"""
"""What `global-learner serve` runs, without the umask that it sets: every file must be closed by whoever makes it."""


class OpenHandedLearner(LearnerProcess):
    """A learner whose umask takes nothing from anybody."""

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as stream:
            return subprocess.Popen(
                [sys.executable, "-c", _SERVE, str(self.config)],
                stdout=stream,
                stderr=stream,
                umask=0,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )


def state_of(task: Path) -> str:
    """One letter, as proc(5) has it."""
    return (task / "stat").read_text().rpartition(") ")[2][0]


@contextmanager
def still(learner: LearnerProcess) -> Iterator[None]:
    """Nothing of its files changes meanwhile: a thread may still be in a system call when it is told to stop."""
    os.kill(learner.pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{learner.pid}/task")
    deadline = time.monotonic() + 60.0
    while any(state_of(task) != "T" for task in tasks.iterdir()):
        assert time.monotonic() < deadline, "the learner does not stop"
        time.sleep(0.01)
    try:
        yield
    finally:
        os.kill(learner.pid, signal.SIGCONT)


def exposed(folder: Path) -> dict[str, str]:
    """Whatever below a folder anybody else may look at, with its mode; every file must be one that is known."""
    found = {}
    for path in (folder, *folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.startswith(LOST_FOLDER):
            pattern_of(name)
        if (mode := stat.S_IMODE(path.lstat().st_mode)) != (0o700 if path.is_dir() else 0o600):
            found[name] = oct(mode)
    return found


@pytest.mark.heavy
def test_nobody_else_reads_anything_of_a_learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile_learner, "LearnerProcess", OpenHandedLearner)
    learner = HostileLearner(
        tmp_path,
        durability={"snapshot_every_steps": 4},
        publish={"every_steps": 3},
        quarantine={"rejections": 1, "within_updates": 1},
    )
    state = learner.process.state_dir
    try:
        for _ in range(30):
            learner.good_push()
        bad = update(999, incarnation=learner.incarnation, gradient=np.full(43, np.nan, np.float32))
        assert learner.fleet(learner.north).Push(push_request(bad, False), timeout=CALL_SECONDS).reason == "not-finite"
        assert (state / OPERATOR_SOCKET).is_socket()
        assert {"quarantine.jsonl", "log", "receipts", "heads", "signing", "registry.sqlite-wal"} <= {
            path.name for path in state.iterdir()
        }
        with still(learner.process):
            assert exposed(state) == {}

        # As an earlier program left it. Keys are no matter of modes alone: somebody may have a copy.
        learner.process.kill()
        for path in (state, *state.rglob("*")):
            if not path.name.endswith((".key", ".pem")):
                path.chmod(0o777 if path.is_dir() else 0o666)
        learner.start()
        with still(learner.process):
            assert exposed(state) == {}
    finally:
        learner.close()

    (newest,) = sorted((state / "log").glob("updates-*"))[-1:]
    newest.unlink()
    (state / "commits").write_bytes(b"")
    (state / "quarantine.jsonl").unlink()
    settings, before = read_settings(learner.process.config), os.umask(0)
    try:
        assert accept_losses(settings, read_policy_file(settings.initial_policy), "ada", 7.0)
    finally:
        os.umask(before)
    assert (state / LOST_FOLDER / "7").is_dir()
    assert exposed(state) == {}


def test_a_learner_that_cannot_start_closes_nothing_of_another_ones(tmp_path: Path) -> None:
    with StateDir(tmp_path / "state"):
        (tmp_path / "state" / "commits").touch()
        (tmp_path / "state" / "commits").chmod(0o644)
        with pytest.raises(StateUnusable, match="held by another learner"):
            StateDir(tmp_path / "state")
        assert exposed(tmp_path / "state") == {"commits": "0o644"}


def test_a_state_directory_behind_a_link_is_closed_to_others_too(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk").chmod(0o777)
    (tmp_path / "state").symlink_to(tmp_path / "disk")
    with StateDir(tmp_path / "state"):
        assert exposed(tmp_path / "disk") == {}
