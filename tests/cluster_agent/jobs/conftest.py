"""A simulated machine that answers on a socket, and the commands that ask it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "backends" / "local"))  # for local_world
sys.path.insert(0, str(Path(__file__).parent))  # for job_shell

from job_shell import Shell
from local_world import LocalWorld

from cluster_agent.backends.local.job_server import JobServer
from cluster_agent.backends.local.job_service import JobDesk


@pytest.fixture
def world(tmp_path: Path) -> LocalWorld:
    return LocalWorld(tmp_path)


@pytest.fixture
def shell(
    world: LocalWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Shell]:
    backend = world.backend
    desk = JobDesk(backend.table, world.capacity, backend.facts, lambda: world.now, tmp_path, seen=backend.seen)
    socket = tmp_path / "s" / "jobs.sock"
    server = JobServer(socket, desk.answers)
    monkeypatch.setenv("CLUSTER_AGENT_SOCKET", str(socket))
    monkeypatch.chdir(tmp_path)
    yield Shell(world, socket, capsys)
    server.close()
