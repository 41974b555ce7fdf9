"""Command `policy-net extend`: a `set` policy's file with further numbers to learn (`set_policy.policy.extended`)."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from foundation.output import Form, Output, show


class PolicyExtra(StrEnum):
    """Further groups of numbers of a `set` policy's file."""

    PRICES = "prices"
    SESSIONS = "sessions"


def extend(
    file: Annotated[Path, typer.Argument(help="A policy file of kind set; or `set` or `set-taught`, which ship.")],
    groups: Annotated[
        list[PolicyExtra],
        typer.Option("--with", help="What it gets (repeatable); policy-net inspect says what it has."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the new file goes.")],
    output: Output = Form.TABLE,
) -> None:
    """Give a set policy's file further numbers that a fleet can learn: prices, or the model of sessions."""
    from policy_net.exchange.policy_file import (  # noqa: PLC0415  (help and refusals of options wait for none of it)
        check_writable,
        read_policy_file,
        write_policy_file,
    )
    from policy_net.set_policy.policy import extended, file_of  # noqa: PLC0415

    check_writable(out)
    content = extended(read_policy_file(file_of(file)), str(file), {str(each) for each in groups})
    write_policy_file(out, content)
    added = content.card["extended_with"]
    facts = {"file": str(out), "with": str(added).split(", "), "parameters": content.spec.parameter_count}
    show(output, facts, f"written: {out}, with {added}", [facts])
