"""Status of jobs for people and programs: `elastic-run status` and `elastic-run list`, as tables or JSON."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from elastic_runtime.control.messages import ResizeMode
from elastic_runtime.errors import BadInput, ElasticError
from elastic_runtime.launcher.commands.options import (
    TIMEOUT_SECONDS,
    Debug,
    Folder,
    Job,
    Output,
    OutputOption,
    Timeout,
    console_of,
    jobs_of,
    show,
)
from elastic_runtime.launcher.job_folder import JobFolder, all_jobs, holder_of, open_job
from elastic_runtime.launcher.job_status import job_facts, resting_facts
from elastic_runtime.protocol.plan import Phase
from foundation.tables import Column, FactSheet, FittedTable

_LIST_SECONDS = 2.0
"""A job that does not answer by then is listed by what its folder says."""
_UNITS = ("B", "kB", "MB", "GB", "TB")
_SHOWN_REQUESTS = 5
_SHOWN_OF_AN_ID = 8
_HANGS_SECONDS, _HANGS_STEPS = 30.0, 20.0
"""A job whose workers all take longer at a step than both is said to hang."""
_OVER = frozenset({Phase.FINISHED.value, Phase.FAILED.value})


def status(
    name: Job,
    folder: Folder = None,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until the job runs no longer.")] = False,
    every_seconds: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two looks.")] = 1.0,
    output: OutputOption = Output.TABLE,
    timeout: Timeout = TIMEOUT_SECONDS,
    debug: Debug = False,
) -> None:
    """How a job is doing: its phase, size, steps, speed, tasks and requests."""
    del debug
    job = open_job(jobs_of(folder), name)
    if watch:
        _watch(job, every_seconds, output, timeout)
    else:
        facts = job_facts(job, timeout)
        show(output, facts, job_table(facts))


def list_jobs(folder: Folder = None, output: OutputOption = Output.TABLE, debug: Debug = False) -> None:
    """All jobs of the folder, the oldest first."""
    del debug
    rows = [_brief(job, _LIST_SECONDS) for job in all_jobs(jobs_of(folder))]
    show(output, rows, jobs_table(rows) if rows else f"there is no job in {jobs_of(folder)}")


def _brief(job: JobFolder, timeout_seconds: float) -> dict[str, Any]:
    """One job that cannot be asked does not hide the others, and one that cannot be asked now may answer later."""
    try:
        return job_facts(job, timeout_seconds)
    except ElasticError:
        facts = {**resting_facts(job), "phase": "unreachable"}
        with contextlib.suppress(BadInput):
            facts["launcher"] = holder_of(job.path)
        return facts


def _watch(job: JobFolder, every_seconds: float, output: Output, timeout_seconds: float) -> None:
    facts = job_facts(job, timeout_seconds)
    if output is Output.JSON or not sys.stdout.isatty():
        _emit(facts, output)
        while facts["launcher"] is not None:
            time.sleep(every_seconds)
            facts = _brief(job, timeout_seconds)
            _emit(facts, output)
        return
    with Live(job_table(facts), console=console_of(terminal=True), auto_refresh=False) as live:
        while facts["launcher"] is not None:
            time.sleep(every_seconds)
            facts = _brief(job, timeout_seconds)
            live.update(job_table(facts), refresh=True)


def _emit(facts: dict[str, Any], output: Output) -> None:
    """One look; a JSON line each, so that a program can read them as they come."""
    if output is Output.JSON:
        print(json.dumps(facts, allow_nan=False), flush=True)
    else:
        show(output, facts, job_table(facts))


def job_table(facts: dict[str, Any]) -> Group:
    """One job: what there is to say about it, its tasks, its newest requests."""
    parts: list[RenderableType] = [FactSheet("", [*_facts(facts)])]
    if facts["tasks"]:
        parts += ["", _tasks(facts["tasks"])]
    if facts.get("requests"):
        shown = facts["requests"][-_SHOWN_REQUESTS:]
        parts += ["", _requests(shown)]
        parts += [Text(f"{_short_id(row)}: {row['detail']}") for row in shown if row["detail"]]
    if facts.get("failure"):
        parts.append(Text(f"failure: {facts['failure']}"))
    return Group(*parts)


def jobs_table(rows: Sequence[dict[str, Any]]) -> FittedTable:
    """All jobs, one a line."""
    columns = (
        Column("job"),
        Column("phase", text=True),
        Column("PSs", 2),
        Column("workers", 2),
        Column("step", 1),
        Column("durable", 3),
        Column("script", words=True),  # where it is tells jobs apart
    )
    cells = [
        (
            facts["job"],
            facts["phase"],
            str(facts["size"]["ps"]),
            str(facts["size"]["workers"]),
            _steps(facts),
            str(facts.get("durable_step", 0)),
            facts["script"] or "",
        )
        for facts in rows
    ]
    return FittedTable("", columns, cells)


def _facts(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    size, target = facts["size"], facts.get("target", facts["size"])
    over = facts["phase"] in _OVER
    wanted = "" if size == target or over else f" (wanted: {_size(target)})"
    yield "job", facts["job"]
    yield "phase", facts["phase"]
    yield "size", _size(size) + wanted
    yield "step", f"{_steps(facts)}, durable {facts.get('durable_step', 0)}"
    if facts.get("total_epochs"):
        yield "epoch", f"{facts.get('epoch', 0.0):.2f} of {facts['total_epochs']:g}"
    if facts.get("loss") is not None:
        yield "loss", f"{facts['loss']:.5g}"
    if facts["tasks"]:
        yield "speed", f"{_rate(facts['samples_per_second'])} samples/s"
        yield "last step", _last_step(facts)
    if facts.get("mode") == "asynchronous":
        yield "staleness", f"{facts.get('staleness', 0)} updates of others (median)"
    if facts.get("replicas", 1) > 1 and facts.get("blocks"):
        yield "replicas", _replicas(facts)
    if facts["tasks"]:
        yield "stall", f"{_milliseconds(facts.get('stall_seconds', 0.0))} in resizes, of the worker that waited most"
    yield "folder", facts["folder"]


def _last_step(facts: dict[str, Any]) -> str:
    """How long ago a worker came to another step; a script that hangs looks like a slow one, and is named so."""
    ages = [
        task["step_age_seconds"] for task in facts["tasks"] if task["role"] == "worker" and task["state"] == "member"
    ]
    if not ages:
        return "–"
    age, usual = min(ages), facts.get("step_seconds", 0.0)
    hangs = facts["phase"] == Phase.RUNNING.value and age > max(_HANGS_SECONDS, _HANGS_STEPS * usual)
    warning = "; steps took " + _milliseconds(usual) + ": does the script hang?" if hangs else ""
    return f"{age:.0f} s ago{warning}"


def _tasks(tasks: Sequence[dict[str, Any]]) -> FittedTable:
    columns = (
        Column("task"),
        Column("state", 1, text=True),
        Column("step"),
        Column("samples/s", 2),
        Column("owns", 4),
        Column("sent", 6),
        Column("got", 6),
        Column("stall", 3),
        Column("heard", 2),
    )
    rows = [
        (
            task["task"],
            task["state"],
            str(task["step"]),
            _rate(task["samples_per_second"]),
            _bytes(task["owned_bytes"]),
            _bytes(task["bytes_sent"]),
            _bytes(task["bytes_received"]),
            _milliseconds(task["stall_seconds"]),
            f"{task['report_age_seconds']:.1f} s",
        )
        for task in tasks
    ]
    return FittedTable("", columns, rows)


def _requests(requests: Sequence[dict[str, Any]]) -> FittedTable:
    columns = (
        Column("request"),
        Column("kind", 1, text=True),
        Column("state", text=True),
        Column("to", 1, text=True),
        Column("at step", 4),
        Column("moved", 5),
        Column("took", 2),
        Column("stall", 3),
    )
    rows = [
        (
            _short_id(request),
            request["kind"],
            request["state"],
            _size(request["target"]),
            str(request["clock"] or ""),
            _bytes(request["moved_bytes"]),
            _took(request),
            _stall(request),
        )
        for request in requests
    ]
    return FittedTable("", columns, rows)


def _short_id(request: dict[str, Any]) -> str:
    return str(request["request_id"][:_SHOWN_OF_AN_ID])


def _rate(per_second: float) -> str:
    """Three or more digits, and never a power of ten."""
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def _took(request: dict[str, Any]) -> str:
    began, ended = request["began_unix_seconds"], request["ended_unix_seconds"]
    return f"{max(0.0, ended - began):.1f} s" if began and ended else ""


def _stall(request: dict[str, Any]) -> str:
    """Of a resize whose workers live on; others hold training for about as long as they take."""
    if request["kind"] != "resize" or request["mode"] == ResizeMode.CHECKPOINT_RESTART.value:
        return ""
    return _milliseconds(request["stall_seconds"])


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.2f} ms" if seconds < 0.01 else f"{1000 * seconds:,.0f} ms"


def _replicas(facts: dict[str, Any]) -> str:
    blocks, second = facts["blocks"], facts["blocks_with_replica"]
    if second == blocks:
        return f"2 of each block ({blocks})"
    why = "; one parameter server cannot hold two" if facts["size"]["ps"] == 1 else "; being made"
    return f"{second} of {blocks} blocks have 2{why}"


def _steps(facts: dict[str, Any]) -> str:
    step, total = facts.get("step", 0), facts.get("total_steps", 0)
    if total and step > total:  # asynchronous, where a worker died between a push and the word that it was done
        return f"{step} of {total}, {step - total} of them again"
    return f"{step}" + (f" of {total}" if total else "")


def _size(size: dict[str, int]) -> str:
    return f"{size['ps']} PS, {size['workers']} worker{'s' * (size['workers'] != 1)}"


def _bytes(count: int) -> str:
    amount = float(count)
    for unit in _UNITS[:-1]:
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} {_UNITS[-1]}"
