"""SIGTERM and SIGINT, whenever they come."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster_agent import cli
from cluster_agent.backends.simulated import backend
from cluster_agent.cli import SIGNALS, AgentStopSignals
from foundation.command_line import run as run_command_line
from foundation.errors import BAD_INPUT


@pytest.fixture(autouse=True)
def _handlers_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_an_agent_that_is_still_reading_its_episodes_stops_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    read = []

    def many_episodes(settings: object) -> None:
        try:
            os.kill(os.getpid(), number)
            read.append("the first")
        except Exception:  # a loader that takes every fault for a bad row must not go on either
            read.append("all the same")
        read.append("the rest")

    monkeypatch.setattr(backend, "load_episodes", many_episodes)
    config = tmp_path / "agent.yaml"
    cluster = {"workloads": [{"source": "dl2:jobs=3"}], "environment": {"nodes": 4}}
    content = {"cluster": "north", "state_dir": "state", "backend": cluster, "policy": {"initial": "drf"}}
    config.write_text(yaml.safe_dump(content))
    assert run_command_line(cli.app, "cluster-agent", ["run", "--config", str(config)]) == 0
    assert read == []
    assert capsys.readouterr().err == "cluster-agent: stopped before it had started; nothing was scheduled\n"


def test_an_agent_that_has_started_is_asked_to_stop() -> None:
    signals = AgentStopSignals()
    signals.on_started()
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    assert signals.stop.is_set()


def test_a_signal_after_a_refusal_does_not_take_its_line_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write = sys.stderr.write

    def signalled_write(text: str) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        return write(text)

    monkeypatch.setattr(sys.stderr, "write", signalled_write)
    arguments = ["run", "--config", str(tmp_path / "nothing.yaml")]
    assert run_command_line(cli.app, "cluster-agent", arguments) == BAD_INPUT
    assert "nothing.yaml" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) not in {signal.SIG_DFL, signal.SIG_IGN}
