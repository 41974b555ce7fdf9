"""What the commands of benchmarks share: the form of their result, and a folder to work in."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status


def parser_of(name: str, description: str | None) -> argparse.ArgumentParser:
    """A parser with the option that all of them have."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser


@contextmanager
def workplace(name: str, parent: Path | None = None) -> Iterator[tuple[Path, Callable[[str], None]]]:
    """A folder that is removed at the end, and what shows on the terminal what is done now.

    Args:
        parent: on the disk to measure; the system's temporary folder if None.
    """
    with (
        tempfile.TemporaryDirectory(prefix=f"fedl2-{name}-", dir=parent) as folder,
        Status("", console=Console(stderr=True)) as status,
    ):
        yield Path(folder), status.update


def show(result: Mapping[str, Any], form: str, rows: str = "", columns: Sequence[str] = ()) -> None:
    """Print a result: as JSON, or as a table of some columns of its rows, and a line for each other figure.

    Args:
        rows: the field that has them; none if empty.
    """
    if form == "json":
        print(json.dumps(result))
        return
    if rows:
        cells = [columns, *([str(row[name]) for name in columns] for row in result[rows])]
        widths = [max(map(len, column)) + 2 for column in zip(*cells, strict=True)]
        for line in cells:
            print("".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)))
    print(*(f"{name:36} {value}" for name, value in result.items() if name != rows), sep="\n")
