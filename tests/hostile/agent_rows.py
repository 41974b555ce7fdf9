"""The matrix's rows for commands about one machine's jobs: a sound line of each, to an agent that starts nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from cluster_agent.backends.local.job_file import JobFile
from cluster_agent.backends.local.job_processes import LocalMeasurement
from cluster_agent.backends.local.job_server import JobServer
from cluster_agent.backends.local.job_service import JobDesk
from cluster_agent.backends.local.job_table import JobState, JobTable, LocalJobRecord
from cluster_agent.backends.local.job_views import user_facts
from cluster_agent.job_messages import Facts
from policy_net.domain import Resources

if TYPE_CHECKING:
    from command_table import Line, Place

PROGRAM = "cluster-agent"
WAITS = "waits"
"""The job that there is; others are named after what they are to go through."""
NOW = 1_000_000.0


class HostileAgent:
    """What answers on an agent's socket, with a table of jobs that nobody ever starts.

    Args:
        folder: gets the socket and the table.
        script: of the jobs.
    """

    def __init__(self, folder: Path, script: Path) -> None:
        folder.mkdir(mode=0o700)
        self._folder = folder
        table = JobTable(folder / "submitted")
        (folder / "logs").mkdir()
        (folder / "logs" / "worker-0.log").write_text("a line\n")
        for name in (WAITS, "cancel-me", "hold-me", "go-on", "delete-me"):
            content = {"name": name, "modelType": "mlp", "script": str(script), "work": {"epochs": 1}}
            table.add(JobFile.model_validate({"elastic": True, **content}), NOW)
        table.change("go-on", held=True)
        table.change("delete-me", state=JobState.CANCELLED, ended_unix_seconds=NOW)
        desk = JobDesk(table, Resources(4000), self._facts, lambda: NOW, folder)
        self._server = JobServer(socket_of(folder.parent), desk.answers)

    def _facts(self, record: LocalJobRecord) -> Facts:
        logs = {"logs": str(self._folder / "logs"), "log": str(self._folder / "launcher.log")}
        return {**user_facts(record, LocalMeasurement(), NOW), **logs}

    def close(self) -> None:
        self._server.close()


def socket_of(folder: Path) -> Path:
    """Of the agent whose folder is in this one."""
    return folder / "agent" / "jobs.sock"


def make_job_file(folder: Path) -> None:
    """A job that can be submitted."""
    content = {"modelType": "mlp", "script": str(folder / "train.py"), "work": {"epochs": 1}}
    (folder / "job.yaml").write_text(yaml.safe_dump(content))


def _of(*words: str) -> Line:
    return lambda place: [*words, "--socket", str(socket_of(place.folder)), "-o", "json"]


def _described(place: Place) -> list[str]:
    return ["--socket", str(socket_of(place.folder)), "-o", "json", str(place.folder / "job.yaml")]


SOUND: dict[str, Line] = {
    f"{PROGRAM} submit": _described,
    f"{PROGRAM} simulate": _described,
    f"{PROGRAM} jobs": _of(),
    f"{PROGRAM} job": _of(WAITS),
    f"{PROGRAM} logs": lambda place: [WAITS, "--socket", str(socket_of(place.folder))],
    f"{PROGRAM} explain": _of(WAITS),
    f"{PROGRAM} cancel": _of("cancel-me"),
    f"{PROGRAM} suspend": _of("hold-me"),
    f"{PROGRAM} resume": _of("go-on"),
    f"{PROGRAM} delete": _of("delete-me"),
    f"{PROGRAM} wheel": lambda place: ["--out", str(place.folder)],
}
PASSES: dict[str, str] = {
    "model_type=unknown": "any word can be a type of model",
    "task=empty": "the lines of all tasks",
    "env_file=empty": "a file may state no variable",
    "depends_on=unknown": "the job of that name that `--name` was tried with",
}
UNREACHABLE = frozenset({"socket"})
"""Parameters that name where an agent answers: where none does, the exit code is 3."""
ANSWERS = [name for name in SOUND if name != f"{PROGRAM} simulate"]
"""To foresee anything takes a decision, and this agent takes none."""
