"""How people name versions on the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from global_learner.errors import BadConfig

VersionArgument = Annotated[str, typer.Argument(help="A version such as 3 or v3, or `latest`.")]


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
