"""The command `cluster-agent report`: what the last days of a cluster were, and what they would have been."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster_agent.errors import BadAgentConfig
from cluster_agent.jobs.options import Watch, changing_polls
from foundation.figures import counted, unit_for
from foundation.output import Form, Output, show
from foundation.output import watch as show_again

if TYPE_CHECKING:
    from rich.console import Group

_CASES = ("recorded", "requested", "advised")
_WATCH_SECONDS = 30.0
"""Between two looks: each replays the jobs of days, and these change by the hour."""
Log = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]",
        help="A decision log, or an agent's state directory; the configuration's unless given.",
        show_default=False,
    ),
]
Config = Annotated[Path | None, typer.Option("--config", help="The agent's configuration (YAML), whose state is read.")]
Days = Annotated[float, typer.Option(min=0.01, max=3650.0, help="Before the newest decision; jobs that ended in them.")]
Policy = Annotated[
    str,
    typer.Option(
        "--policy", metavar="NAME|FILE", help="That would have decided; unless given, the one that decided last."
    ),
]
Page = Annotated[
    Path | None,
    typer.Option("--report", metavar="FOLDER", help="Write a page (index.html) and a picture (report.png) as well."),
]


def report(
    log: Log = None,
    config: Config = None,
    days: Days = 7.0,
    policy: Policy = "",
    folder: Page = None,
    watch: Watch = False,
    output: Output = Form.TABLE,
) -> None:
    """Say how long jobs took in the last days, and how long they would have taken under the policy that advises.

    Read from what the agent has logged; nothing is asked of a cluster.
    """
    if (log is None) == (config is None):
        raise BadAgentConfig("name one of the two: a decision log (or a state directory), or an agent's --config")
    if watch and folder is not None:
        raise BadAgentConfig("--report and --watch do not go together: a page is written once")
    source = log
    if config is not None:
        from cluster_agent.settings_file import read_settings  # noqa: PLC0415

        source = read_settings(config).state_dir
    assert source is not None  # noqa: S101  (one of the two is there; narrows the type)
    if not source.exists():
        raise BadAgentConfig(
            f"{source}: cannot be read, as it is not there; name a decision log, or an agent's state directory"
        )
    # Loaded here: this takes a second, and the program's other commands need nothing of it.
    from cluster_agent.jobs.past_week import Past, past_week  # noqa: PLC0415

    past = Past(source, days, policy, folder)
    if watch:
        show_again(changing_polls(lambda: past_week(past), _WATCH_SECONDS), report_table, output, _rows)
        return
    found = past_week(past)
    show(output, found, lambda: report_table(found), _rows(found))


def _rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The answer's csv."""
    return [{"case": case} | found[case] for case in _CASES]


def report_table(found: dict[str, Any]) -> Group:
    """The answer for people."""
    from rich.console import Group  # noqa: PLC0415  (a refusal needs nothing that draws)

    from foundation.tables import Column, FittedTable  # noqa: PLC0415

    ways = {
        "as recorded": found["recorded"],
        "simulated, at the sizes asked for": found["requested"],
        f"simulated, under {found['advised']['policy']}": found["advised"],
    }
    seconds = [way["avgJctSeconds"] for way in ways.values()]
    unit, base = unit_for(*seconds), found["requested"]["avgJctSeconds"]
    columns = (Column(f"{counted(found['jobs'], 'job')}, {found['days']:g} days"), Column("average"), Column("change"))
    rows = [
        (name, unit.text(average), f"{average / base - 1:+.0%}" if way is found["advised"] else "")
        for (name, way), average in zip(ways.items(), seconds, strict=True)
    ]
    table = FittedTable("", columns, rows)
    cluster = f"on {counted(found['nodes'], 'node')} with {counted(found['gpus'], 'GPU')}"
    pages = [f"written: {found['page']}"] if found["page"] else []
    return Group(table, "", f"from submission to end, {cluster}", *found["notes"], *pages, "", found["answer"])
