"""Views of jobs for people: a table of all, and one in full."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from foundation.figures import counted, duration, percent
from foundation.text import plain_line

if TYPE_CHECKING:
    from foundation.tables import FactSheet, FittedTable

_EMPTY = "–"
_NEW_SECONDS = 5.0
"""What was seen so lately counts as of now: jobs that are watched are measured every two or three seconds."""
_KINDS = {
    "ps": "resized while it trains",
    "async": "resized while it trains",
    "allreduce": "all-reduce, resized by a checkpoint",
    "fixed": "of a fixed size",
}
_GUARD = {
    "nan": "its numbers were not finite, so the fallback decided",
    "exception": "it failed, so the fallback decided",
    "deadline": "it thought for too long, so the fallback decided",
    "malformed": "its decision was none, so the fallback decided",
    "idle": "no job would have trained, so the fallback decided",
    "untaught": "it was never taught for such jobs, so the fallback decided",
    "exceptional": "it was unlike the recent past, so the fallback decided",
    "unknown-job": "a job that is not there was left out",
    "over-cap": "a job got no more than it may have",
    "over-capacity": "jobs got what there was, in order of arrival",
    "fallback-failed": "the fallback failed too, so jobs kept what they had",
}
"""What the guard did to a decision, by its own word."""
_TRIGGERS = {
    "arrival": "an arrival",
    "completion": "a completion",
    "slot": "the end of a slot",
    "node-change": "a change of machines",
}
"""Why a decision was due, likewise."""


def job_table(jobs: Sequence[dict[str, Any]]) -> FittedTable | str:
    """All jobs, a line each, in the order of their submission; a sentence where there is none."""
    return jobs_table(jobs) if jobs else "no jobs; `cluster-agent submit` hands one over"


def jobs_table(jobs: Sequence[dict[str, Any]]) -> FittedTable:
    """The same table, also where there is no job; to programs it says shares and seconds."""
    from foundation.tables import Column, FittedTable  # noqa: PLC0415  (a refusal needs nothing that draws)

    columns = (
        Column("name"),
        Column("type", 3, text=True),
        Column("state", text=True),
        Column("workers", 1),
        Column("PSs", 1),
        Column("progress", 2),
        Column("waited", 5),
        Column("running", 4),
        Column("age", 6),
        Column("note", words=True),
    )
    return FittedTable("", columns, [_cells(job) for job in jobs], for_programs=[_bare_cells(job) for job in jobs])


def _cells(job: dict[str, Any]) -> tuple[str, ...]:
    return (
        job["name"],
        job["modelType"],
        job["state"],
        str(job["workers"] or _EMPTY),
        str(job["ps"] or _EMPTY),
        _EMPTY if job["progress"] is None else percent(job["progress"]),
        clock_time(job["waitedSeconds"]),
        clock_time(job["runSeconds"]),
        clock_time(job["ageSeconds"]),
        plain_line(job["note"]),
    )


def _bare_cells(job: dict[str, Any]) -> tuple[str, ...]:
    seconds = (job["waitedSeconds"], job["runSeconds"], job["ageSeconds"])
    return (
        job["name"],
        job["modelType"],
        job["state"],
        str(job["workers"]),
        str(job["ps"]),
        "" if job["progress"] is None else str(job["progress"]),
        *(f"{passed:.3f}" for passed in seconds),
        job["note"],
    )


def one_job(job: dict[str, Any], now_unix_seconds: float) -> FactSheet:
    """Everything about one job, with the age of what is older than the rest."""
    from foundation.tables import FactSheet  # noqa: PLC0415

    return FactSheet("", [*_rows(job, now_unix_seconds)])


def _rows(job: dict[str, Any], now_unix_seconds: float) -> Iterable[tuple[str, str]]:
    # By the agent's clock, which stands still while the machine sleeps and does not jump when somebody sets the time.
    measured = _age(job.get("measuredUnixSeconds"), job["submittedUnixSeconds"] + job["ageSeconds"])
    last_age = _age(job.get("lastLineUnixSeconds"), now_unix_seconds)
    of_time = {key: clock_time(job[f"{key}Seconds"]) for key in ("run", "age")}
    may, stall = job["may"], job["stallSeconds"]
    rows = {
        "name": job["name"],
        "type": job["modelType"],
        "state": job["state"] + (f", {job['note']}" if job["note"] else ""),
        "has": tasks(job["workers"], job["ps"]) + measured,
        "may have": " and ".join(_span(role, span) for role, span in may.items()) + f"; {_KINDS[job['kind']]}",
        "progress": _EMPTY if job["progress"] is None else percent(job["progress"]) + measured,
        "samples": f"{job['samples']:,.0f}" + measured,
        "submitted": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job["submittedUnixSeconds"])),
        "waited": clock_time(job["waitedSeconds"]),
        "trained": of_time["run"] + (f", {duration(stall)} of it in resizes" if stall else ""),
        "age": of_time["age"],
        **({"time limit": _limit(job)} if job.get("timeLimit") else {}),
        **({"depends on": ", ".join(job["dependsOn"])} if job.get("dependsOn") else {}),
        **({"started again": counted(job["restarts"], "time")} if job.get("restarts") else {}),
        **({"notifies": job["notify"]} if job.get("notify") else {}),
        "command": " ".join([*(job.get("interpreter") or ()), job["script"], *job["args"]]),
        **({"runs in": job["workdir"]} if "workdir" in job else {}),
        **({"starts": _COLD} if job.get("interpreter") and job["kind"] != "fixed" else {}),
        "said last": plain_line(job["lastLine"]) + last_age if job.get("lastLine") else _EMPTY,
        "log": job["log"],
    }
    return rows.items()


def _limit(job: dict[str, Any]) -> str:
    left = job["timeLeftSeconds"]
    return str(job["timeLimit"]) + (f", {clock_time(left)} left" if left is not None else "")


_COLD = "with nothing imported ahead: not by the agent's own Python, or with options"


def _age(seen_unix_seconds: float | None, now_unix_seconds: float) -> str:
    """How old something is, to be said behind it; empty where that is not known, or as new as the rest."""
    age_seconds = 0.0 if seen_unix_seconds is None else now_unix_seconds - seen_unix_seconds
    return f" ({clock_time(age_seconds)} ago)" if age_seconds >= _NEW_SECONDS else ""


def _span(role: str, span: dict[str, Any]) -> str:
    least, most = span["min"], span["max"]
    word = {"workers": "worker", "ps": "parameter server"}[role] + "s" * (most != 1)
    cores = f"{span['cpu']:g} core" + "s" * (span["cpu"] != 1)
    gpus = f", {span['gpu']} GPU{'s' * (span['gpu'] != 1)}" if span["gpu"] else ""
    return f"{least if least == most else f'{least}–{most}'} {word} of {cores}{gpus}"


def decision_rows(decision: dict[str, Any], given: str, now_unix_seconds: float) -> Iterable[tuple[str, str]]:
    """A decision about a job: what it gave (in words), when, because of what, and by whom."""
    version = f" v{decision['version']}" if decision["version"] else ""
    version = version if version.strip() != decision["policy"] else ""  # a fleet's version has no other name
    if decision.get("from") == "now":
        yield "decided", f"{given} would be now; the agent's own decision is not at hand (--config)"
        yield "by policy", f"{decision['policy']}{version}"
        return
    ago = clock_time(now_unix_seconds - decision["unixSeconds"])
    yield "decided", f"{given}, {ago} ago (number {decision['number']})"
    yield "because of", _TRIGGERS.get(decision["trigger"], decision["trigger"])
    yield "by policy", f"{decision['policy']}{version}"
    yield "the guard", "; ".join(_GUARD.get(word, word) for word in decision["guard"]) or "changed nothing"
    if decision.get("guardDetail"):
        yield "since", decision["guardDetail"]
    for reason in decision["reasons"]:
        yield "reason", reason


def clock_time(seconds: float) -> str:
    """A time that goes on while it is read, in whole units."""
    whole = max(0, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02d}h"
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def tasks(workers: int, ps: int) -> str:
    """A size in words."""
    if not workers:
        return "nothing"
    return f"{workers} worker{'s' * (workers != 1)}" + (f", {ps} parameter server{'s' * (ps != 1)}" if ps else "")
