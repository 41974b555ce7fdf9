"""Every file of an agent's state directory, damaged in every way: gone on with, or refused in one line."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
import structlog
from agent_fakes import policy_bytes
from damage import DAMAGE, copies, files_of

from cluster_agent.agent import Agent
from cluster_agent.fleet.policy_versions import KeptVersion
from cluster_agent.settings import AgentSettings
from foundation.command_line import exit_code
from foundation.text import plain_line
from policy_net.exchange.policy_file import digest_of
from policy_net.exchange.wire import FetchedPolicy

pytestmark = pytest.mark.heavy

LONGEST_LINE = 600
FORGETS = frozenset({"agent.json=gone", "cluster.json=gone", "policies/v7.safetensors=gone"})
"""Without them an agent begins anew, as it does in an empty directory."""


class StopAfter(threading.Event):
    """Set after so many looks at it: an agent that is told to end amid its work."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._left = looks

    def wait(self, timeout: float | None = None) -> bool:
        self._left -= 1
        if self._left <= 0:
            self.set()
        return self.is_set()


def settings(state_dir: Path) -> AgentSettings:
    return AgentSettings.model_validate(
        {
            "cluster": "north",
            "state_dir": state_dir,
            "backend": {
                "workloads": [{"source": "dl2:jobs=6,seed=3"}],
                "environment": {"nodes": 4},
                "baseline": False,
            },
            "policy": {"initial": "set"},
            "learning": {"enabled": False},
        }
    )


def run(state_dir: Path, looks: int) -> Agent:
    agent = Agent(settings(state_dir), StopAfter(looks))
    agent.run()
    return agent


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agent") / "state"
    file = policy_bytes()
    KeptVersion(folder).keep(FetchedPolicy(7, file, digest_of(file)))
    run(folder, 6)
    return folder


def test_an_agent_goes_on_where_it_ended(lived: Path, tmp_path: Path) -> None:
    shutil.copytree(lived, tmp_path / "copy")
    agent = Agent(settings(tmp_path / "copy"), StopAfter(1))
    assert agent.status().decisions >= 3
    assert agent.status().acting_version == 7


def test_damage_is_gone_on_with_or_refused_in_one_line(lived: Path, tmp_path: Path) -> None:
    shutil.copytree(lived, tmp_path / "first")
    whole = run(tmp_path / "first", 1).status()
    names = [name for name in files_of(lived) if name != "lock"]
    assert len(names) >= 4, names
    wrong, kinds = [], set()
    for name, kind, copy in copies(lived, tmp_path, names):
        label = f"{name}={kind}"
        kinds.add(kind)
        with structlog.testing.capture_logs() as said:
            try:
                status = run(copy, 1).status()
            except Exception as error:
                if exit_code(error) != 2 or not str(error).isprintable() or len(str(error)) > LONGEST_LINE:
                    wrong.append(f"{label}: {type(error).__name__}: {plain_line(str(error), 300)}")
                continue
        warned = [line["event"] for line in said if line["log_level"] in ("warning", "error")]
        if status != whole and not warned and label not in FORGETS:
            wrong.append(f"{label}: silently {status}, not {whole}")
    assert not wrong, "\n".join(wrong)
    assert kinds == set(DAMAGE)
