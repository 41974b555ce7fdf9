"""Tables of jobs, for `elastic-run status` and `elastic-run list`: all jobs a line each, or one with its tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from elastic_runtime.control.messages import ResizeMode
from elastic_runtime.protocol.plan import ENDED, JobPhase
from foundation.tables import Column, FactSheet, FittedTable

_UNITS = ("B", "kB", "MB", "GB", "TB")
_SHOWN_REQUESTS = 5
_SHOWN_OF_AN_ID = 8
_HANGS_SECONDS, _HANGS_STEPS = 30.0, 20.0
"""A job whose workers all take longer at a step than both is said to hang."""


Facts = dict[str, Any]
_Shown = tuple[Column, Callable[[Facts], str], Callable[[Facts], str] | None]
"""A column, with what people read of a row, and programs; None: the same."""


def job_table(facts: Facts, *, whole: bool = False) -> Group:
    """One job: facts, tasks, newest requests.

    Args:
        whole: all requests, by their whole ids.
    """
    parts: list[RenderableType] = [FactSheet("", [*_facts(facts)])]
    if facts["tasks"]:
        parts += ["", _table(_TASKS, facts["tasks"])]
    if facts.get("requests"):
        shown = facts["requests"] if whole else facts["requests"][-_SHOWN_REQUESTS:]
        letters = None if whole else _SHOWN_OF_AN_ID
        request_id = (Column("request"), lambda row: row["request_id"][:letters], _figure("request_id"))
        parts += ["", _table((request_id, *_REQUESTS), shown)]
        parts += [Text(f"{row['request_id'][:letters]}: {row['detail']}") for row in shown if row["detail"]]
    if facts.get("failure"):
        parts.append(Text(f"failure: {facts['failure']}"))
    return Group(*parts)


def jobs_table(rows: Sequence[Facts]) -> FittedTable:
    """All jobs, one a line."""
    return _table(_JOBS, rows)


def _facts(facts: Facts) -> Iterator[tuple[str, str]]:
    size = facts["size"]
    target = facts.get("target") or size
    over = facts["phase"] in ENDED
    desired = "" if size == target or over else f" (wanted: {_size(target)})"
    yield "job", facts["job"]
    yield "phase", facts["phase"]
    yield "size", _size(size) + desired
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


def _last_step(facts: Facts) -> str:
    """How long ago a worker came to another step; a script that hangs looks like a slow one, and is named so."""
    ages = [
        task["step_age_seconds"] for task in facts["tasks"] if task["role"] == "worker" and task["state"] == "member"
    ]
    if not ages:
        return "–"
    age, usual = min(ages), facts.get("step_seconds", 0.0)
    hangs = facts["phase"] == JobPhase.RUNNING.value and age > max(_HANGS_SECONDS, _HANGS_STEPS * usual)
    warning = "; steps took " + _milliseconds(usual) + ": does the script hang?" if hangs else ""
    return f"{age:.0f} s ago{warning}"


def _failures(facts: Facts) -> str:
    """How often the script failed: one that gets on is started again for ever, which nobody may notice otherwise."""
    in_a_row = facts.get("failures_in_a_row", 0)
    since = f", {in_a_row} since a step became durable" if in_a_row else ""
    return f"{facts['failures']}{since}; last: {facts.get('last_failure', '')}"


def _table(shown: Sequence[_Shown], rows: Sequence[Facts]) -> FittedTable:
    cells = [[words(row) for _, words, _ in shown] for row in rows]
    bare = [[(figure or words)(row) for _, words, figure in shown] for row in rows]
    return FittedTable("", [column for column, _, _ in shown], cells, for_programs=bare)


def _rate(per_second: float) -> str:
    """Three or more digits, and never a power of ten."""
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def _took_seconds(request: Facts) -> float | None:
    began, ended = request["began_unix_seconds"], request["ended_unix_seconds"]
    return max(0.0, ended - began) if began and ended else None


def _stall_seconds(request: Facts) -> float | None:
    """Of a resize whose workers live on; others hold training for about as long as they take."""
    if request["kind"] != "resize" or request["mode"] == ResizeMode.CHECKPOINT_RESTART.value:
        return None
    return float(request["stall_seconds"])


def _bare(seconds: float | None) -> str:
    return "" if seconds is None else str(seconds)


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.2f} ms" if seconds < 0.01 else f"{1000 * seconds:,.0f} ms"


def _replicas(facts: Facts) -> str:
    blocks, second = facts["blocks"], facts["blocks_with_replica"]
    if second == blocks:
        return f"2 of each block ({blocks})"
    why = "; one parameter server cannot hold two" if facts["size"]["ps"] == 1 else "; being made"
    return f"{second} of {blocks} blocks have 2{why}"


def _steps(facts: Facts) -> str:
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


def _figure(name: str) -> Callable[[Facts], str]:
    return lambda row: str(row[name])


_JOBS: tuple[_Shown, ...] = (
    (Column("job"), _figure("job"), None),
    (Column("phase", text=True), _figure("phase"), None),
    (Column("PSs", 2), lambda facts: str(facts["size"]["ps"]), None),
    (Column("workers", 2), lambda facts: str(facts["size"]["workers"]), None),
    (Column("step", 1), _steps, lambda facts: str(facts.get("step", 0))),
    (Column("durable", 3), lambda facts: str(facts.get("durable_step", 0)), None),
    # Where it is tells jobs apart.
    (Column("script", words=True), lambda facts: facts["script"] or "", None),
)
_TASKS: tuple[_Shown, ...] = (
    (Column("task"), _figure("task"), None),
    (Column("state", 1, text=True), _figure("state"), None),
    (Column("step"), _figure("step"), None),
    (Column("samples/s", 2), lambda task: _rate(task["samples_per_second"]), _figure("samples_per_second")),
    (Column("owns", 4), lambda task: _bytes(task["owned_bytes"]), _figure("owned_bytes")),
    (Column("sent", 6), lambda task: _bytes(task["bytes_sent"]), _figure("bytes_sent")),
    (Column("got", 6), lambda task: _bytes(task["bytes_received"]), _figure("bytes_received")),
    (Column("stall", 3), lambda task: _milliseconds(task["stall_seconds"]), _figure("stall_seconds")),
    (Column("heard", 2), lambda task: f"{task['report_age_seconds']:.1f} s", _figure("report_age_seconds")),
)
_REQUESTS: tuple[_Shown, ...] = (
    (Column("kind", 1, text=True), _figure("kind"), None),
    (Column("state", text=True), _figure("state"), None),
    (Column("to", 1, text=True), lambda row: _size(row["target"]), None),
    (Column("at step", 4), lambda row: str(row["clock"] or ""), None),
    (Column("moved", 5), lambda row: _bytes(row["moved_bytes"]), _figure("moved_bytes")),
    (
        Column("took", 2),
        lambda row: "" if (took := _took_seconds(row)) is None else f"{took:.1f} s",
        lambda row: _bare(_took_seconds(row)),
    ),
    (
        Column("stall", 3),
        lambda row: "" if (stall := _stall_seconds(row)) is None else _milliseconds(stall),
        lambda row: _bare(_stall_seconds(row)),
    ),
)
