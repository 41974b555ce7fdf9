"""The commands `cluster-agent submit`, `jobs`, `job`, `logs`, `cancel`, `suspend` and `resume`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console

from cluster_agent.backends.local.job_file import read_job_file
from cluster_agent.errors import BadJobFile, JobRefused
from cluster_agent.jobs.client import JobClient
from cluster_agent.jobs.views import job_table, one_job

_WATCH_SECONDS = 1.0
_FILE_WIDTH = 160
_LOOK_SECONDS = 0.5


class Form(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Socket = Annotated[
    Path | None,
    typer.Option(
        "--socket",
        envvar="CLUSTER_AGENT_SOCKET",
        help="The agent's; $XDG_STATE_HOME/fedl2/agent/jobs.sock, or below ~/.local/state, unless given.",
        show_default=False,
    ),
]
Output = Annotated[Form, typer.Option("-o", "--output", help="A table for people, JSON or YAML for programs.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The job's, as `cluster-agent jobs` shows it.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show it again whenever it changes, until Ctrl-C.")]
Debug = Annotated[bool, typer.Option(help="Print a traceback with an error.")]


def submit(
    job: Annotated[
        list[str],
        typer.Argument(metavar="FILE | -- python SCRIPT [ARGUMENTS]...", help="A job file (YAML), or a command."),
    ],
    name: Annotated[str | None, typer.Option(help="The job's; from its script unless given.")] = None,
    model_type: Annotated[str | None, typer.Option("--model-type", help="What it trains; the script's name.")] = None,
    epochs: Annotated[
        float | None, typer.Option(min=0.0, help="How much it has to do, where its file is none.")
    ] = None,
    workers: Annotated[str | None, typer.Option(metavar="MIN-MAX", help="How many workers it may have.")] = None,
    ps: Annotated[str | None, typer.Option("--ps", metavar="MIN-MAX", help="How many parameter servers.")] = None,
    cpu: Annotated[str | None, typer.Option(help="Cores of one worker, such as 1 or 500m.")] = None,
    suspend: Annotated[bool, typer.Option(help="Take it, and wait for `cluster-agent resume`.")] = False,
    socket: Socket = None,
    output: Output = Form.TABLE,
    debug: Debug = False,  # noqa: ARG001  (read by foundation.command_line)
) -> None:
    """Hand a job over: it is kept, and begins when there is room and its turn.

    A file may be changed afterwards; what counts is what was submitted.
    """
    source, content = _described(job)
    given: dict[str, Any] = {"name": name, "modelType": model_type}
    given |= {"work": None if epochs is None else {"epochs": epochs}, "suspend": suspend or None}
    for role, text in (("worker", workers), ("ps", ps)):
        if text is not None:
            content[role] = {**content.get(role, {}), **_span(role, text)}
    if cpu is not None:
        content["worker"] = {**content.get("worker", {}), "cpu": cpu}
    content |= {key: value for key, value in given.items() if value is not None}
    content.setdefault("modelType", Path(str(content.get("script", "job"))).stem)
    with JobClient(socket) as client:
        facts = client.call("submit", {"job": content, "folder": str(Path.cwd()), "source": source})
    _show(output, facts, f"{facts['name']} is {facts['state']}; `cluster-agent job {facts['name']}` says how it is")


def jobs(
    socket: Socket = None,
    watch: Watch = False,
    output: Output = Form.TABLE,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """List all jobs."""
    for facts in _asked(socket, "jobs", {}, watch):
        _show(output, facts["jobs"], job_table(facts["jobs"]))


def job(
    name: Name,
    socket: Socket = None,
    watch: Watch = False,
    output: Output = Form.TABLE,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Show one job."""
    for facts in _asked(socket, "jobs", {"name": name}, watch):
        _show(output, facts["jobs"][0], one_job(facts["jobs"][0]))


def logs(
    name: Name,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    task: Annotated[str, typer.Option(help="Of a task such as worker-0; of the first worker unless given.")] = "",
    socket: Socket = None,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Print what a job wrote."""
    with JobClient(socket) as client:
        facts = client.call("jobs", {"name": name})["jobs"][0]
        path = _log_of(Path(facts["logs"]), task)
        if path is None:
            raise JobRefused(f"{name}: has written nothing yet" + (f" as {task}" if task else ""))
        with path.open("rb") as stream:
            while True:
                ended = client.call("jobs", {"name": name})["jobs"][0]["ended"] if follow else True
                sys.stdout.buffer.write(stream.read())
                sys.stdout.flush()
                if ended:
                    return
                time.sleep(_LOOK_SECONDS)


def cancel(name: Name, socket: Socket = None, output: Output = Form.TABLE, debug: Debug = False) -> None:
    """End a job for good."""
    _act("cancel", name, socket, output, debug)


def suspend_job(name: Name, socket: Socket = None, output: Output = Form.TABLE, debug: Debug = False) -> None:
    """Hold a job: it writes a checkpoint, and what it had goes to others."""
    _act("suspend", name, socket, output, debug)


def resume(name: Name, socket: Socket = None, output: Output = Form.TABLE, debug: Debug = False) -> None:
    """Let a held job be scheduled again."""
    _act("resume", name, socket, output, debug)


def _act(method: str, name: str, socket: Path | None, output: Form, debug: bool) -> None:
    del debug
    with JobClient(socket) as client:
        facts = client.call(method, {"name": name})
    _show(output, facts, f"{name} is {facts['state']}" + (", to be held" if facts["held"] else ""))


def _described(words: list[str]) -> tuple[str, dict[str, Any]]:
    """The job of a file, or of a command: `python train.py --epochs 3`, or the script alone."""
    first = Path(words[0])
    if len(words) == 1 and first.suffix in {".yaml", ".yml", ".json"}:
        return words[0], read_job_file(first)
    if first.name.startswith("python"):
        words = words[1:]
    if not words or words[0].startswith("-") or Path(words[0]).suffix != ".py":
        raise BadJobFile("submit takes a job file (.yaml), or a command such as `-- python train.py --lr 0.1`")
    return words[0], {"script": words[0], "args": words[1:]}


def _span(role: str, text: str) -> dict[str, int]:
    least, _, most = text.partition("-")
    try:
        return {"min": int(least), "max": int(most or least)}
    except ValueError:
        raise BadJobFile(f"--{role} {text}: use a number, or MIN-MAX such as 1-4") from None


def _asked(socket: Path | None, method: str, content: dict[str, Any], watch: bool) -> Iterator[dict[str, Any]]:
    with JobClient(socket) as client:
        before = None
        while True:
            facts = client.call(method, content)
            if facts != before:
                yield facts
            if not watch:
                return
            before = facts
            time.sleep(_WATCH_SECONDS)


def _log_of(folder: Path, task: str) -> Path | None:
    found = sorted(folder.glob(f"{task or 'worker-*'}.log"), key=lambda path: (len(path.name), path.name))
    return found[0] if found else None


def _show(output: Form, record: Any, shown: Any) -> None:
    if output is Form.JSON:
        print(json.dumps(record, indent=2), flush=True)
    elif output is Form.YAML:
        print(yaml.safe_dump(record, sort_keys=False), end="", flush=True)
    else:
        Console(width=None if sys.stdout.isatty() else _FILE_WIDTH, markup=False, highlight=False).print(shown)
