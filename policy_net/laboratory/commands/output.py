"""The `-o` option of every sub-command: a table for people, JSON for programs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class OutputFormat(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


Output = Annotated[OutputFormat, typer.Option("-o", "--output", help="A table for people, JSON for programs.")]
