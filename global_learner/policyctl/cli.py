"""The program `policyctl`: what the platform owner asks a learner."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from global_learner.errors import EXIT_CODES, BadConfig
from global_learner.policyctl.client import AdminClient, TlsFiles
from global_learner.policyctl.views import (
    Facts,
    fleet_facts,
    fleet_table,
    released_table,
    shown_version_facts,
    version_facts,
    version_table,
    versions_table,
)
from policy_net.cli_errors import run

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Looks after a learner's versions and its fleet.")
version_app = typer.Typer(no_args_is_help=True, help="Published policy versions.")
app.add_typer(version_app, name="version")
cluster_app = typer.Typer(no_args_is_help=True, help="Clusters of the fleet.")
app.add_typer(cluster_app, name="cluster")


class Output(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


Address = Annotated[
    str, typer.Option("--learner", envvar="FEDL2_LEARNER", help="The learner's HOST:PORT.", show_default=True)
]
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="A table for people, JSON for programs.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.01, max=600.0, help="Seconds to wait for the learner.")]
Ca = Annotated[Path | None, typer.Option("--ca", help="Certificates the learner's is checked against (PEM).")]
Certificate = Annotated[Path | None, typer.Option("--cert", help="This caller's certificate (PEM).")]
Key = Annotated[Path | None, typer.Option("--key", help="Its private key (PEM).")]
Debug = Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")]

_LEARNER = "127.0.0.1:7070"
_TIMEOUT_SECONDS = 5.0


@version_app.command("list")
def list_versions(
    learner: Address = _LEARNER,
    output: OutputOption = Output.TABLE,
    timeout: Timeout = _TIMEOUT_SECONDS,
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
    debug: Debug = False,
) -> None:
    """All versions, oldest first."""
    del debug  # The error boundary looks for the flag itself.
    with _learner(learner, TlsFiles(ca, cert, key), timeout) as client:
        facts = [version_facts(card) for card in client.versions()]
    _print(output, facts, versions_table(facts))


@version_app.command("show")
def show_version(
    version: Annotated[str, typer.Argument(help="A version such as 3 or v3, or `latest`.")],
    learner: Address = _LEARNER,
    output: OutputOption = Output.TABLE,
    timeout: Timeout = _TIMEOUT_SECONDS,
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
    debug: Debug = False,
) -> None:
    """One version: where it comes from, and the spec of its weights."""
    del debug
    number = _version_number(version)
    with _learner(learner, TlsFiles(ca, cert, key), timeout) as client:
        facts = shown_version_facts(client.version(client.fleet().latest_version if number is None else number))
    _print(output, facts, version_table(facts))


@app.command("fleet")
def show_fleet(
    learner: Address = _LEARNER,
    output: OutputOption = Output.TABLE,
    timeout: Timeout = _TIMEOUT_SECONDS,
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
    debug: Debug = False,
) -> None:
    """All clusters: their jobs, what they act on, what they contributed."""
    del debug
    with _learner(learner, TlsFiles(ca, cert, key), timeout) as client:
        facts = fleet_facts(client.fleet())
    _print(output, facts, fleet_table(facts))


@cluster_app.command("release")
def release_cluster(
    cluster: Annotated[str, typer.Argument(help="The cluster's name.")],
    learner: Address = _LEARNER,
    output: OutputOption = Output.TABLE,
    timeout: Timeout = _TIMEOUT_SECONDS,
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
    debug: Debug = False,
) -> None:
    """End a cluster's quarantine: its updates are looked at again."""
    del debug
    with _learner(learner, TlsFiles(ca, cert, key), timeout) as client:
        facts: Facts = {"cluster": cluster, "released": client.release(cluster)}
    _print(output, facts, released_table(facts))


@contextlib.contextmanager
def _learner(address: str, tls: TlsFiles, timeout_seconds: float) -> Iterator[AdminClient]:
    client = AdminClient(address, tls, timeout_seconds)
    try:
        yield client
    finally:
        client.close()


def _version_number(text: str) -> int | None:
    """The number in `3` or `v3`; None for `latest`."""
    if text == "latest":
        return None
    digits = text.removeprefix("v")
    if not digits.isdecimal() or not 0 < int(digits) < 2**63:
        raise BadConfig(f"{text!r} is no version: use a number such as 3 or v3, or `latest`")
    return int(digits)


def _print(output: Output, facts: Facts | list[Facts], table: Table) -> None:
    if output is Output.JSON:
        print(json.dumps(facts, indent=2))
    else:
        Console().print(table)


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(app, "policyctl", codes=EXIT_CODES))


if __name__ == "__main__":
    main()
