"""The program `policyctl`: what the platform owner asks a learner."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from global_learner.errors import EXIT_CODES, BadConfig
from global_learner.policyctl.client import TlsFiles
from global_learner.policyctl.cluster_commands import cluster_app
from global_learner.policyctl.options import (
    LEARNER,
    TIMEOUT_SECONDS,
    Address,
    Ca,
    Certificate,
    Debug,
    Key,
    Output,
    OutputOption,
    Timeout,
    asked,
    show,
)
from global_learner.policyctl.report_command import write_report
from global_learner.policyctl.views import (
    fleet_facts,
    fleet_table,
    shown_version_facts,
    version_facts,
    version_table,
    versions_table,
)
from policy_net.cli_errors import run

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Looks after a learner's versions and its fleet.")
version_app = typer.Typer(no_args_is_help=True, help="Published policy versions.")
app.add_typer(version_app, name="version")
app.add_typer(cluster_app, name="cluster")
app.command("report")(write_report)


@version_app.command("list")
def list_versions(
    learner: Address = LEARNER,
    output: OutputOption = Output.TABLE,
    timeout: Timeout = TIMEOUT_SECONDS,
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
    debug: Debug = False,
) -> None:
    """All versions, oldest first."""
    del debug  # The error boundary looks for the flag itself.
    with asked(learner, TlsFiles(ca, cert, key), timeout) as client:
        facts = [version_facts(card) for card in client.versions()]
    show(output, facts, versions_table(facts))


@version_app.command("show")
def show_version(
    version: Annotated[str, typer.Argument(help="A version such as 3 or v3, or `latest`.")],
    learner: Address = LEARNER,
    output: OutputOption = Output.TABLE,
    timeout: Timeout = TIMEOUT_SECONDS,
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
    debug: Debug = False,
) -> None:
    """One version: where it comes from, and the spec of its weights."""
    del debug
    number = _version_number(version)
    with asked(learner, TlsFiles(ca, cert, key), timeout) as client:
        facts = shown_version_facts(client.version(client.fleet().latest_version if number is None else number))
    show(output, facts, version_table(facts))


@app.command("fleet")
def show_fleet(
    learner: Address = LEARNER,
    output: OutputOption = Output.TABLE,
    timeout: Timeout = TIMEOUT_SECONDS,
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
    debug: Debug = False,
) -> None:
    """All clusters: their jobs, what they act on, what they contributed."""
    del debug
    with asked(learner, TlsFiles(ca, cert, key), timeout) as client:
        facts = fleet_facts(client.fleet())
    show(output, facts, fleet_table(facts))


def _version_number(text: str) -> int | None:
    """The number in `3` or `v3`; None for `latest`."""
    if text == "latest":
        return None
    digits = text.removeprefix("v")
    if not digits.isdecimal() or not 0 < int(digits) < 2**63:
        raise BadConfig(f"{text!r} is no version: use a number such as 3 or v3, or `latest`")
    return int(digits)


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(app, "policyctl", codes=EXIT_CODES))


if __name__ == "__main__":
    main()
