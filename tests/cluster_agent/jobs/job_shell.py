"""Somebody's terminal on a simulated machine: what is typed, and what is read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from local_world import LocalWorld

from cluster_agent.cli import app
from foundation.command_line import run
from policy_net.domain import Allocation, Decision


@dataclass
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


class Shell:
    """Somebody's terminal, in the folder of their job files."""

    def __init__(self, world: LocalWorld, socket: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.world = world
        self.socket = socket
        self.folder = world.folder
        self._capsys = capsys

    def type(self, *words: str) -> Answer:
        self._capsys.readouterr()
        code = run(app, "cluster-agent", list(words))
        captured = self._capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    def file(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def decide(self, **allocation: Allocation) -> None:
        """The next decision, and the interval after it."""
        observed = self.world.backend.observe()
        assert observed is not None
        self.world.backend.apply(Decision(allocation))
