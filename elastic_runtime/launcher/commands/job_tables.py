"""Tables of jobs, for `elastic-run status` and `elastic-run list`: all jobs a line each, or one with its tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from elastic_runtime.control.messages import ResizeMode
from elastic_runtime.protocol.plan import Phase
from foundation.tables import Column, FactSheet, FittedTable

_UNITS = ("B", "kB", "MB", "GB", "TB")
_SHOWN_REQUESTS = 5
_SHOWN_OF_AN_ID = 8
_HANGS_SECONDS, _HANGS_STEPS = 30.0, 20.0
"""A job whose workers all take longer at a step than both is said to hang."""
_OVER = frozenset({Phase.FINISHED.value, Phase.FAILED.value})


def job_table(facts: dict[str, Any], *, whole: bool = False) -> Group:
    """One job: what there is to say about it, its tasks, its newest requests.

    Args:
        whole: all requests, by their whole ids.
    """
    parts: list[RenderableType] = [FactSheet("", [*_facts(facts)])]
    if facts["tasks"]:
        parts += ["", _tasks(facts["tasks"])]
    if facts.get("requests"):
        shown = facts["requests"] if whole else facts["requests"][-_SHOWN_REQUESTS:]
        letters = None if whole else _SHOWN_OF_AN_ID
        parts += ["", _requests(shown, letters)]
        parts += [Text(f"{row['request_id'][:letters]}: {row['detail']}") for row in shown if row["detail"]]
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
    bare = [(*row[:4], str(facts.get("step", 0)), *row[5:]) for row, facts in zip(cells, rows, strict=True)]
    return FittedTable("", columns, cells, for_programs=bare)


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
    if facts.get("failures"):
        yield "failures", _failures(facts)
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


def _failures(facts: dict[str, Any]) -> str:
    """How often the script failed: one that gets on is started again for ever, which nobody may notice otherwise."""
    in_a_row = facts.get("failures_in_a_row", 0)
    since = f", {in_a_row} since a step became durable" if in_a_row else ""
    return f"{facts['failures']}{since}; last: {facts.get('last_failure', '')}"


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
    figures = (
        *("task", "state", "step", "samples_per_second", "owned_bytes", "bytes_sent", "bytes_received"),
        *("stall_seconds", "report_age_seconds"),
    )
    bare = [[str(task[figure]) for figure in figures] for task in tasks]
    return FittedTable("", columns, rows, for_programs=bare)


def _requests(requests: Sequence[dict[str, Any]], letters: int | None) -> FittedTable:
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
            request["request_id"][:letters],
            request["kind"],
            request["state"],
            _size(request["target"]),
            str(request["clock"] or ""),
            _bytes(request["moved_bytes"]),
            "" if (took := _took_seconds(request)) is None else f"{took:.1f} s",
            "" if (stall := _stall_seconds(request)) is None else _milliseconds(stall),
        )
        for request in requests
    ]
    bare = [
        (
            request["request_id"],
            *row[1:5],
            str(request["moved_bytes"]),
            _bare(_took_seconds(request)),
            _bare(_stall_seconds(request)),
        )
        for request, row in zip(requests, rows, strict=True)
    ]
    return FittedTable("", columns, rows, for_programs=bare)


def _rate(per_second: float) -> str:
    """Three or more digits, and never a power of ten."""
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def _took_seconds(request: dict[str, Any]) -> float | None:
    began, ended = request["began_unix_seconds"], request["ended_unix_seconds"]
    return max(0.0, ended - began) if began and ended else None


def _stall_seconds(request: dict[str, Any]) -> float | None:
    """Of a resize whose workers live on; others hold training for about as long as they take."""
    if request["kind"] != "resize" or request["mode"] == ResizeMode.CHECKPOINT_RESTART.value:
        return None
    return float(request["stall_seconds"])


def _bare(seconds: float | None) -> str:
    return "" if seconds is None else str(seconds)


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
