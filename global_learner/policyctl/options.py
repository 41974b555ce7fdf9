"""Options that every command of policyctl takes, the connection that they stand for, and how results are printed."""

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

from global_learner.policyctl.client import AdminClient, TlsFiles
from global_learner.policyctl.views import Facts


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
Certificate = Annotated[
    Path | None,
    typer.Option(
        "--cert",
        envvar="FEDL2_CERT",
        help="This caller's certificate (PEM); of an identity file, such as the learner's admin.pem, also key and ca.",
    ),
]
Key = Annotated[Path | None, typer.Option("--key", help="Its private key (PEM).")]
Debug = Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")]

LEARNER = "127.0.0.1:7070"
TIMEOUT_SECONDS = 5.0

_FILE_WIDTH = 160
"""Columns of a table that goes to a file or a pipe, where the widest one fits."""


@contextlib.contextmanager
def asked(address: str, tls: TlsFiles, timeout_seconds: float) -> Iterator[AdminClient]:
    """A learner to ask, for as long as it takes."""
    client = AdminClient(address, tls, timeout_seconds)
    try:
        yield client
    finally:
        client.close()


def show(output: Output, facts: Facts | list[Facts], table: Table) -> None:
    """Print a result in the form that was asked for."""
    if output is Output.JSON:
        print(json.dumps(facts, indent=2))
    else:
        console = Console() if sys.stdout.isatty() else Console(width=_FILE_WIDTH)
        console.print(table)
