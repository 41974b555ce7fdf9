"""`policyctl report`: the fleet on one page, as a file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from foundation.option_groups import with_option_groups
from global_learner.policyctl.options import CallOptions
from global_learner.policyctl.views import Facts
from global_learner.report.content import report_content
from global_learner.report.files import write_page


@with_option_groups
def write_report(
    out: Annotated[Path, typer.Option("--out", help="The folder for index.html; made if it is not there.")] = Path(
        "report"
    ),
    state_dir: Annotated[
        Path | None,
        typer.Option("--state-dir", help="Read the files of a learner that has ended; nothing is known of jobs then."),
    ] = None,
    *,
    options: CallOptions,
) -> None:
    """Write the fleet's report: one page that needs nothing else, to open in a browser, print or pass on."""
    if state_dir is not None:
        # Loads what a learner itself does: only who reads a state directory waits for it.
        from global_learner.report.offline import report_of_files  # noqa: PLC0415

        content = report_content(report_of_files(state_dir, time.time()))
    else:
        with options.client() as client:
            content = report_content(client.report())
    page = write_page(content, out)
    facts: Facts = {
        "page": str(page),
        "headline": content["headline"]["text"],
        "clusters": len(content["clusters"]),
        "versions": len(content["versions"]) + content["versions_left_out"],
    }
    options.show(facts, report_table(facts))


def report_table(facts: Facts) -> Table:
    """Where the page is, and what it says first."""
    table = Table("report", facts["page"])
    table.add_row("says", facts["headline"])
    table.add_row("clusters", str(facts["clusters"]))
    table.add_row("versions", str(facts["versions"]))
    return table
