"""Commands as they are typed: help, versions and refusals of every program, what a newcomer sees first."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

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
