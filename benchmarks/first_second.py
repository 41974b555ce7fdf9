"""First second of every program: `python -m benchmarks.first_second -o json`, two minutes.

Help, versions and refusals of what was typed are what a newcomer sees first, and sees most often. Each is run several
times as a user runs it, in turns with `python -c pass`, and the processor time of its process is taken, which hardly
depends on what else the machine does. What these commands may load is held by `tests/contracts/test_light_start.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

GOAL_CPU_SECONDS = 0.4
"""Beyond that a command feels slow on a machine of two busy cores."""
MISSING = "nothere"
"""Names no file, job or cluster."""
SLIP = "slip.yaml"
"""A configuration with a setting that nobody knows."""
_SLIP = "stat_dir: state\n"


@dataclass(frozen=True, slots=True)
class Command:
    """What is typed.

    Attributes:
        exit_code: what it ends with.
        brings: of the libraries that take time to load, those that this command cannot do without.
    """

    program: str
    words: tuple[str, ...]
    exit_code: int = 0
    brings: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """As it is typed."""
        return " ".join((self.program, *self.words))


def _commands(program: str, lines: dict[str, int], *brings: str) -> list[Command]:
    """Commands of a program by their words, with their exit codes."""
    return [Command(program, tuple(line.split()), code, frozenset(brings)) for line, code in lines.items()]


COMMANDS = (
    *_commands(
        "policy-net",
        {
            "--help": 0,
            "--version": 0,
            "replay --help": 0,
            "train --help": 0,
            "tune --help": 0,
            "inspect --help": 0,
            "completion bash": 0,
            "fit-speed --help": 0,
            "--confg": 2,
            "replay --confg": 2,
            "train --out": 2,
            "tune --trials 0": 2,
            f"replay --workload x.csv --policy {MISSING}": 2,
            f"inspect {MISSING}": 2,
            "runs --help": 0,
            f"runs {MISSING}": 2,
            "reproduce --help": 0,
            "reproduce dl2": 2,
            "extend --help": 0,
            f"extend {MISSING} --out new.safetensors": 2,
        },
    ),
    *_commands(
        "policy-net",
        {f"replay --workload {MISSING}.csv --policy fifo": 2, f"fit-speed --table {MISSING}": 2},
        "numpy",
    ),
    *_commands(
        "policy-net",
        {
            f"train --workload {MISSING}.csv --out new.safetensors": 2,
            "tune --workload dl2:jobs=3 --vary sped --out study": 2,
        },
        "numpy",
        "pydantic",
    ),
    *_commands(
        "elastic-run",
        {
            "--help": 0,
            "--version": 0,
            "run --help": 0,
            "resize --help": 0,
            "status --help": 0,
            "completion fish": 0,
            "resize --confg": 2,
            "list": 0,
            f"{MISSING}.py": 2,
            f"--ps 0 {MISSING}.py": 2,
            f"status {MISSING}": 2,
            f"resize {MISSING} --ps 2": 2,
            f"suspend {MISSING}": 2,
            f"stop {MISSING}": 2,
            f"logs {MISSING}": 2,
            f"delete {MISSING}": 2,
            f"cancel {MISSING}": 2,
            f"resume {MISSING}": 2,
            "logs --help": 0,
            "delete --help": 0,
        },
    ),
    *_commands(
        "cluster-agent",
        {
            "--help": 0,
            "--version": 0,
            "run --help": 0,
            "submit --help": 0,
            "jobs --help": 0,
            "explain --help": 0,
            "completion bash": 0,
            "run --confg": 2,
            "jobs": 3,
            f"job {MISSING}": 3,
            f"logs {MISSING}": 3,
            f"cancel {MISSING}": 3,
            f"suspend {MISSING}": 3,
            "logs --help": 0,
            "simulate --help": 0,
            f"report {MISSING}": 2,
            f"training-key --secret a --out {MISSING} --account {MISSING}": 2,
        },
    ),
    *_commands(
        "cluster-agent",
        {
            f"run --config {MISSING}": 2,
            f"run --config {SLIP}": 2,
            f"run --check --config {SLIP}": 2,
            f"explain north/{MISSING} --kubeconfig {MISSING}": 2,
            f"simulate -f {MISSING}.yaml --kubeconfig {MISSING}": 2,
        },
        "pydantic",
    ),
    *_commands("cluster-agent", {f"submit {MISSING}.yaml": 2, f"replay-log {MISSING}": 2}, "numpy", "pydantic"),
    *_commands(
        "global-learner", {"--help": 0, "--version": 0, "serve --help": 0, "serve --confg": 2, "completion bash": 0}
    ),
    *_commands(
        "global-learner",
        {
            f"serve --config {MISSING}": 2,
            f"serve --config {SLIP}": 2,
            f"serve --check --config {SLIP}": 2,
            f"accept-loss --config {MISSING}": 2,
            f"restore-version v1 --from {MISSING} --config {MISSING}": 2,
            f"backup {MISSING} --config {MISSING}": 2,
            f"admin-secret a --config {MISSING}": 2,
        },
        "numpy",
        "pydantic",
    ),
    *_commands(
        "policyctl",
        {
            "--help": 0,
            "--version": 0,
            "version --help": 0,
            "rollout start --help": 0,
            "completion zsh": 0,
            "completion powershell": 2,
            "fleet --confg": 2,
            "version diff v1": 2,
            "version show 3rd": 2,
            "context list": 0,
            "context set --help": 0,
            "context set north": 2,
            f"context use {MISSING}": 2,
            f"context delete {MISSING}": 2,
            "version note --help": 0,
            "rollback --help": 0,
            "rollback": 2,
            f"fleet --context {MISSING}": 2,
            f"report --state-dir {MISSING}": 2,
            MISSING: 2,
        },
    ),
    *_commands(
        "policyctl", {f"rollout start v2 --plan {MISSING}": 2, f"rollout start v2 --plan {SLIP}": 2}, "pydantic"
    ),
    *_commands(
        "policyctl",
        {
            "fleet --learner 127.0.0.1:1": 3,
            "version list --learner 127.0.0.1:1": 3,
            "version note v1 good --learner 127.0.0.1:1": 3,
        },
        "grpc",
    ),
)


def prepare(folder: Path) -> dict[str, str]:
    """Write what the commands name into their working folder; the environment in which they find nothing else.

    No job, agent or configuration of the user's is looked at.
    """
    (folder / SLIP).write_text(_SLIP)
    ours = ("ELASTIC_", "FEDL2_", "CLUSTER_AGENT_", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}


def used_seconds(words: list[str], folder: Path, environment: dict[str, str]) -> tuple[float, float, int]:
    """Run a command; its process's processor time, its time on the clock, and its exit code."""
    began = time.perf_counter()
    with subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - began, process.returncode


def measure(commands: tuple[Command, ...], turns: int) -> dict[str, Any]:
    """Medians over the turns, each of which runs an interpreter that does nothing, and every command once.

    Raises:
        RuntimeError: a program is not installed, or ended otherwise than it should.
    """
    folder_of_programs = Path(sys.executable).parent
    bare: list[float] = []
    cpu: dict[Command, list[float]] = {command: [] for command in commands}
    wall: dict[Command, list[float]] = {command: [] for command in commands}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = prepare(folder)
        for _ in range(turns):
            bare.append(used_seconds([sys.executable, "-c", "pass"], folder, environment)[0])
            for command in commands:
                program = folder_of_programs / command.program
                if not program.exists():
                    raise RuntimeError(f"{program}: is not there; run `make setup`, and this with its interpreter")
                used, passed, code = used_seconds([str(program), *command.words], folder, environment)
                if code != command.exit_code:
                    raise RuntimeError(f"{command.text}: ended with {code}, and not with {command.exit_code}")
                cpu[command].append(used)
                wall[command].append(passed)
    of_bare = median(bare)
    rows: list[dict[str, Any]] = [
        {
            "command": command.text,
            "exit_code": command.exit_code,
            "cpu_seconds": round(median(cpu[command]), 3),
            "times_bare_python": round(median(cpu[command]) / of_bare, 1),
            "wall_seconds": round(median(wall[command]), 3),
        }
        for command in commands
    ]
    return {
        "turns": turns,
        "bare_python_cpu_seconds": round(of_bare, 3),
        "goal_cpu_seconds": GOAL_CPU_SECONDS,
        "beyond_goal": sum(row["cpu_seconds"] > GOAL_CPU_SECONDS for row in rows),
        "commands": rows,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--turns", type=int, default=5, help="how often each command is run")
    parser.add_argument("--program", help="only the commands of this one, such as policy-net")
    wanted = parser.parse_args()
    chosen = tuple(command for command in COMMANDS if wanted.program in (None, command.program))
    if wanted.turns < 1 or not chosen:
        parser.error(f"--turns is at least 1, and --program one of {', '.join(sorted({c.program for c in COMMANDS}))}")
    record = measure(chosen, wanted.turns)
    if wanted.output == "json":
        print(json.dumps(record, indent=2))
        return
    for row in record["commands"]:
        print(f"{row['cpu_seconds']:6.3f} s {row['times_bare_python']:6.1f}x  {row['command']}")
    print(f"{record['bare_python_cpu_seconds']:6.3f} s           python -c pass")


if __name__ == "__main__":
    main()
