"""The command `cluster-agent explain`: why a job has what it has, and what it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster_agent.jobs.client import JobClient, Name, Socket, Watch, changing_polls
from cluster_agent.jobs.cluster_access import Config, Context, Kubeconfig
from cluster_agent.jobs.views import clock_time, decision_rows, tasks
from foundation.figures import counted
from foundation.output import Form, Output, show
from foundation.output import watch as show_again

if TYPE_CHECKING:
    from rich.console import Group

    from foundation.tables import FittedTable

_WATCH_SECONDS = 2.0
"""Between two looks: each asks a cluster's API server for all that the answer needs."""


def explain(
    name: Name,
    socket: Socket = None,
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    watch: Watch = False,
    output: Output = Form.TABLE,
) -> None:
    """Say why a job has what it has: what the policy believes it gains by more, what it waits for, and who decided.

    A job of this machine by its name; an ElasticTarget of a Kubernetes cluster as NAMESPACE/NAME, a
    TrainingJob as NAMESPACE/trainingjob/NAME. With --config of a simulated cluster a job of its newest decision, by
    the name in its log.
    """
    simulated = _simulated_state(config) if config is not None and "/" not in name else None
    if simulated is not None:
        from cluster_agent.recording.last_decision import explain_from_log  # noqa: PLC0415

        _answer(lambda: explain_from_log(name, simulated), explained, watch, output)
        return
    if "/" in name or config is not None or kubeconfig is not None or context is not None:
        # Loaded here: this takes a second, and jobs of this machine need nothing of it.
        from cluster_agent.jobs.cluster_access import opened  # noqa: PLC0415

        with opened(config, kubeconfig, context) as cluster:
            from cluster_agent.jobs.cluster_explaining import explain_target  # noqa: PLC0415
            from cluster_agent.jobs.cluster_explaining import explained as in_lines  # noqa: PLC0415

            _answer(lambda: explain_target(cluster, name), in_lines, watch, output)
        return
    client = JobClient(socket)
    _answer(lambda: client.call("explain", {"name": name}), explained, watch, output)


def _answer(
    ask: Callable[[], dict[str, Any]],
    view: Callable[[dict[str, Any], float], Group],
    watch: bool,
    output: Form,
) -> None:
    if watch:
        show_again(changing_polls(ask, _WATCH_SECONDS), lambda facts: view(facts, time.time()), output)
    else:
        facts = ask()
        show(output, facts, lambda: view(facts, time.time()))


def _simulated_state(config: Path) -> Path | None:
    """The state directory of a simulated cluster's agent; None of another kind of cluster's."""
    from cluster_agent.backend_settings import SimulatedBackendSettings  # noqa: PLC0415  (brings pydantic)
    from cluster_agent.settings_file import read_settings  # noqa: PLC0415

    settings = read_settings(config)
    return settings.state_dir if isinstance(settings.backend, SimulatedBackendSettings) else None


def explained(facts: dict[str, Any], now_unix_seconds: float) -> Group:
    """The answer for people."""
    from rich.console import Group  # noqa: PLC0415  (a refusal needs nothing that draws)

    from foundation.tables import FactSheet  # noqa: PLC0415

    rows = [("job", facts["name"]), ("state", _state(facts, now_unix_seconds))]
    rows.append(("has", tasks(facts["workers"], facts["ps"])))
    rows.append(("waits for", facts["waitsFor"] or "nothing: it has what was decided"))
    decision = facts["decision"]
    if decision is not None:
        rows += decision_rows(decision, tasks(decision["workers"], decision["ps"]), now_unix_seconds)
    parts: list[Any] = [FactSheet("", rows)]
    if facts["steps"]:
        parts += ["", "What the policy believes that it gains, in the order in which it was weighed:", _steps(facts)]
    elif decision is not None:
        parts += ["", f"{decision['policy']} gives no gains for its grants."]
    if facts["others"]:
        parts += ["", "Others were given: " + ", ".join(_other(row) for row in facts["others"])]
    return Group(*parts)


def _state(facts: dict[str, Any], now_unix_seconds: float) -> str:
    """With for how long it is that; an agent of before, and a simulated one, do not say since when."""
    since = facts.get("stateSinceUnixSeconds")
    if since is None:
        return str(facts["state"])
    ago = clock_time(now_unix_seconds - since)
    return f"{facts['state']}, {ago} ago" if facts["ended"] else f"{facts['state']} for {ago}"


def _steps(facts: dict[str, Any]) -> FittedTable:
    from foundation.tables import Column, FittedTable  # noqa: PLC0415

    servers = any(step["ps"] for step in facts["steps"])
    columns = (
        Column("workers"),
        *([Column("PSs")] if servers else []),
        Column("believed\nsamples/s", 1),
        Column("times\nas fast"),
        Column("score", 2),
        Column("after", 3, text=True),
        Column("became", text=True),
    )
    rows = [
        (
            str(step["workers"]),
            *([str(step["ps"])] if servers else []),
            f"{step['samplesPerSecond']:,.0f}",
            f"{step['timesAsFast']:.2f}" if step["timesAsFast"] else "–",
            f"{step['score']:.3g}",
            counted(step["rank"], "other") if step["rank"] else "none",
            "granted" if step["taken"] else "no room",
        )
        for step in facts["steps"]
    ]
    return FittedTable("", columns, rows)


def _other(row: dict[str, Any]) -> str:
    score = "" if row["score"] is None else f" (first step's score {row['score']:.3g})"
    return f"{row['name']} {row['workers']}+{row['ps']}{score}"
