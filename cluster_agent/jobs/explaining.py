"""The command `cluster-agent explain`: why a job has what it has, and what it waits for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from cluster_agent.jobs.client import JobClient
from cluster_agent.jobs.options import Debug, Form, Name, Output, Socket, show
from cluster_agent.jobs.views import clock_time, facts_table, tasks

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_GUARD = {
    "nan": "its numbers were not finite, so the fallback decided",
    "exception": "it failed, so the fallback decided",
    "deadline": "it thought for too long, so the fallback decided",
    "malformed": "its decision was none, so the fallback decided",
    "idle": "no job would have trained, so the fallback decided",
    "unknown-job": "a job that is not there was left out",
    "over-cap": "a job got no more than it may have",
    "over-capacity": "jobs got what there was, in order of arrival",
    "fallback-failed": "the fallback failed too, so jobs kept what they had",
}


def explain(
    name: Name,
    socket: Socket = None,
    output: Output = Form.TABLE,
    debug: Debug = False,  # noqa: ARG001  (read by foundation.command_line)
) -> None:
    """Say why a job has what it has: what the policy believes it gains by more, what it waits for, and who decided."""
    with JobClient(socket) as client:
        facts = client.call("explain", {"name": name})
    show(output, facts, explained(facts, time.time()))


def explained(facts: dict[str, Any], now_unix_seconds: float) -> Group:
    """The answer for people."""
    from rich.console import Group  # noqa: PLC0415  (takes longer than a list of jobs)

    rows = [("job", facts["name"]), ("state", facts["state"]), ("has", tasks(facts["workers"], facts["ps"]))]
    rows.append(("waits for", facts["waitsFor"] or "nothing: it has what was decided"))
    decision = facts["decision"]
    if decision is not None:
        ago = clock_time(now_unix_seconds - decision["unixSeconds"])
        version = f" v{decision['version']}" if decision["version"] else ""
        version = version if version.strip() != decision["policy"] else ""  # a fleet's version has no other name
        rows += [
            ("decided", f"{tasks(decision['workers'], decision['ps'])}, {ago} ago (number {decision['number']})"),
            ("because of", f"{_TRIGGERS.get(decision['trigger'], decision['trigger'])}"),
            ("by policy", f"{decision['policy']}{version}"),
            ("the guard", "; ".join(_GUARD.get(word, word) for word in decision["guard"]) or "changed nothing"),
        ]
        rows += [("reason", reason) for reason in decision["reasons"]]
    parts: list[Any] = [facts_table(rows)]
    if facts["steps"]:
        parts += ["", "What the policy believes that it gains, in the order in which it was weighed:", _steps(facts)]
    elif decision is not None:
        parts += ["", f"{decision['policy']} gives no gains for its grants."]
    if facts["others"]:
        parts += ["", "Others were given: " + ", ".join(_other(row) for row in facts["others"])]
    return Group(*parts)


_TRIGGERS = {
    "arrival": "an arrival",
    "completion": "a completion",
    "slot": "the end of a slot",
    "node-change": "a change of the machine",
}


def _steps(facts: dict[str, Any]) -> Table:
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("to", "believed samples/s", "times as fast", "score", "after", ""):
        table.add_column(name, justify="left" if name in ("to", "") else "right", no_wrap=True)
    for step in facts["steps"]:
        table.add_row(
            tasks(step["workers"], step["ps"]),
            f"{step['samplesPerSecond']:,.0f}",
            f"{step['timesAsFast']:.2f}" if step["timesAsFast"] else "–",
            f"{step['score']:.3g}",
            f"{step['rank']} others" if step["rank"] else "none",
            "granted" if step["taken"] else "no room",
        )
    return table


def _other(row: dict[str, Any]) -> str:
    score = "" if row["score"] is None else f" (first step's score {row['score']:.3g})"
    return f"{row['name']} {row['workers']}+{row['ps']}{score}"
