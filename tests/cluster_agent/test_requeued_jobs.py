"""Real scripts that are requeued and ends that are told, by an agent that is killed meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from killed_machine import Machine
from processes import wait_until

pytestmark = pytest.mark.heavy

SCRIPT = """
import os, pathlib, signal, sys, time
here, name = pathlib.Path(__file__).parent, sys.argv[1]
saved = here / f"{name}.saved"
with (here / f"{name}.runs").open("a") as runs:
    runs.write(f"{os.environ['RESTART_COUNT']} {saved.exists()}\\n")
def save(*_):
    saved.touch()
    sys.exit(1)
signal.signal(signal.SIGTERM, save)
while not (here / "go" / name).exists():
    time.sleep(0.05)
sys.exit(int((here / "go" / name).read_text()))
"""
TELLS = (
    "/bin/sh -c 'echo $JOB_NAME $JOB_STATE $JOB_EXIT_CODE >> told; until [ -e heard-$JOB_NAME ]; do sleep 0.1; done'"
)

UNKNOWN = "notification failed: the agent ended while it was sent; it is not sent again"


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def test_a_requeued_script_gives_way_outlives_kills_and_its_end_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "go").mkdir()
    fixed = {"modelType": "script", "script": "script.py", "requeue": True, "notify": TELLS, "checkpointSeconds": 0.1}
    machine = Machine(tmp_path)
    machine.config.write_text(machine.config.read_text(encoding="utf-8").replace("drf", "srtf"), encoding="utf-8")

    def submit(name: str, epochs: float) -> None:
        job = {"name": name, "args": [name], "worker": {"cpu": 3}, "work": {"epochs": epochs}}
        machine.submit({**fixed, **job})

    def runs(name: str) -> list[str]:
        return text(tmp_path / f"{name}.runs").splitlines()

    def end(name: str, code: int) -> None:
        (tmp_path / "go" / name).write_text(str(code), encoding="utf-8")
        wait_until(lambda: f"{name} " in text(tmp_path / "told"), "its end is told")

    with machine:
        submit("long", 1000.0)
        wait_until(lambda: runs("long") == ["0 False"], "alone it has its turn")
        submit("short", 1.0)
        wait_until(lambda: runs("short") == ["0 False"], "what is shorter has its place")
        wait_until(lambda: machine.facts("long")["state"] == "suspended", "it has given way")
        end("short", 3)
        wait_until(lambda: runs("long") == ["0 False", "1 True"], "it is started again, with what it saved")
        assert machine.kill("long", "agent")
        wait_until(machine.answers, "the next agent answers")
        assert machine.kill("long", "launcher")
        wait_until(lambda: runs("long") == ["0 False", "1 True", "2 True"], "it is started again")
        wait_until(lambda: machine.facts("long")["restarts"] == 2, "its user sees that")
        end("long", 0)
        assert [machine.facts(name)["state"] for name in ("short", "long")] == ["failed", "done"]
        assert machine.kill("long", "agent")
        wait_until(machine.answers, "the next agent answers")
        for name in ("short", "long"):
            (tmp_path / f"heard-{name}").touch()
            wait_until(lambda name=name: UNKNOWN in machine.facts(name)["note"], "that is said")  # type: ignore[misc]
        assert machine.problems == []
    assert text(tmp_path / "told").splitlines() == ["short failed 3", "long done 0"]
