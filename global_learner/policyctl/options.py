"""Options that commands of policyctl share: the learner to ask, how results are printed, versions and moments."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml
from rich.console import Console, RenderableType

from global_learner.errors import BadConfig
from global_learner.policyctl.views import Facts

if TYPE_CHECKING:
    from global_learner.policyctl.client import AdminClient


class Output(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


VersionArgument = Annotated[str, typer.Argument(help="A version such as 3 or v3, or `latest`.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and change nothing.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, in a line for others.")]
_AGO = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_FILE_WIDTH = 160
"""Columns of a table that goes to a file or a pipe, where the widest one fits."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What every command of policyctl can be told; taken whole, under `with_option_groups`."""

    learner: Annotated[
        str,
        typer.Option(
            "--learner",
            envvar="FEDL2_LEARNER",
            help="The learner's HOST:PORT, or its socket, unix:STATE_DIR/operator.sock.",
            show_default=True,
        ),
    ] = "127.0.0.1:7070"
    output: Annotated[Output, typer.Option("-o", "--output", help="A table for people, JSON or YAML for programs.")] = (
        Output.TABLE
    )
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.01, max=600.0, help="Seconds to wait for the learner.")
    ] = 5.0
    ca: Annotated[Path | None, typer.Option("--ca", help="Certificates the learner's is checked against (PEM).")] = None
    cert: Annotated[
        Path | None,
        typer.Option(
            "--cert",
            envvar="FEDL2_CERT",
            help=(
                "This caller's certificate (PEM); of an identity file, such as the learner's admin.pem, also key and "
                "ca."
            ),
        ),
    ] = None
    key: Annotated[Path | None, typer.Option("--key", help="Its private key (PEM).")] = None
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False
    """Nothing here asks for it: the error boundary looks for the flag itself."""

    @contextlib.contextmanager
    def client(self) -> Iterator[AdminClient]:
        """The learner to ask, for as long as it takes.

        Raises:
            BadConfig, IdentityFileError: the address or a file cannot be used.
        """
        # gRPC would print lines of its own about handshakes; what is wrong is found out and said in ours.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        # Help and refusals of what was typed need no gRPC.
        from global_learner.policyctl.client import AdminClient, TlsFiles  # noqa: PLC0415

        client = AdminClient(self.learner, TlsFiles(self.ca, self.cert, self.key), self.timeout)
        try:
            yield client
        finally:
            client.close()

    def show(self, facts: Facts | list[Facts], table: RenderableType) -> None:
        """Print a result in the form that was asked for."""
        if self.output is Output.JSON:
            print(json.dumps(facts, indent=2))
        elif self.output is Output.YAML:
            print(yaml.safe_dump(facts, sort_keys=False, allow_unicode=True), end="")
        else:
            console = Console() if sys.stdout.isatty() else Console(width=_FILE_WIDTH)
            console.print(table)


def version_number(text: str) -> int | None:
    """The number in `3` or `v3`; None for `latest`.

    Raises:
        BadConfig: it is neither.
    """
    if text == "latest":
        return None
    digits = text.removeprefix("v")
    if not (digits.isascii() and digits.isdecimal()) or not 0 < int(digits) < 2**63:
        raise BadConfig(f"{text!r} is no version: use a number such as 3 or v3, or `latest`")
    return int(digits)


def moment_of(text: str, now_unix_seconds: float) -> float:
    """Unix seconds of `90s`, `30m`, `12h` or `7d` before now, or of a date or moment in UTC.

    Raises:
        BadConfig: it is none of these.
    """
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now_unix_seconds - int(ago[1]) * _SECONDS[ago[2]]
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise BadConfig(f"{text!r} is no moment: use 30m, 12h, 7d, or 2026-01-31 or 2026-01-31T12:00 (UTC)") from error
