"""Output of policyctl: how a result is printed, for people and for programs, once or again and again.

A look that is watched has the deadline of a call, and a learner that does not answer for a minute is given up.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, TypeVar

import typer
import yaml
from rich.console import Console, Group, RenderableType

from foundation.tables import NOTHING, FactSheet, FittedTable
from global_learner.errors import Unreachable
from global_learner.policyctl.views import Facts

_FILE_WIDTH = 160
"""Columns of a table that goes to a file or a pipe, where the widest one fits."""
_EVERY_WIDTH = 100_000
"""Columns in which nothing is left out or goes on in a new line."""

_LOOK_SECONDS = 2.0
"""Between two tries while no learner answers, however seldom is looked otherwise."""
AWAY_SECONDS = 60.0
"""A failover takes ten seconds, a restart mostly less."""


class Output(StrEnum):
    """How results are printed."""

    TABLE = "table"
    WIDE = "wide"
    CSV = "csv"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[
    Output,
    typer.Option("-o", "--output", help="A table for people; wide: all columns; csv, JSON or YAML for programs."),
]
Table = FittedTable | FactSheet
Tables = Table | Group
Found = TypeVar("Found", Facts, list[Facts])


def show(output: Output, facts: Facts | list[Facts], table: Tables | str) -> None:
    """Print a result in the form that was asked for; a text for people is also what others than programs are told."""
    if output is Output.JSON:
        print(json.dumps(facts, indent=2))
    elif output is Output.YAML:
        print(yaml.safe_dump(facts, sort_keys=False, allow_unicode=True), end="")
    elif output is Output.CSV:
        if isinstance(table, str):
            table = FactSheet("", [("result", table)])
        parts = table.renderables if isinstance(table, Group) else [table]
        for number, part in enumerate([part for part in parts if isinstance(part, FittedTable | FactSheet)]):
            if number:
                print()
            write_csv(part)
    else:
        console_of(output).print(table)


def console_of(output: Output) -> Console:
    """Where tables are printed, as wide as they may be."""
    if output is Output.WIDE:
        return Console(width=_EVERY_WIDTH, markup=False, highlight=False)
    return Console() if sys.stdout.isatty() else Console(width=_FILE_WIDTH)


def write_csv(table: Table, *, headings: bool = True) -> None:
    """Print a table's headings, unless they stand above already, and its cells, all of them and whole."""
    import csv  # noqa: PLC0415  (few ask for it)

    writer = csv.writer(sys.stdout, lineterminator="\n")
    if headings:
        writer.writerow(table.headings)
    writer.writerows(["" if cell == NOTHING else cell for cell in row] for row in table.cells)


def watch(
    once: Callable[[], Found],
    table: Callable[[Found], Table],
    output: Output,
    every_seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Show what is found again and again, until it is interrupted, which is no error.

    On a terminal a table stays where it is; everything else is printed below what was printed before: JSON on one line
    each, so that a program can read it as it comes.

    Args:
        once: one look; raises `Unreachable` where no learner answers.

    Raises:
        Unreachable: at the first look, or for longer than `AWAY_SECONDS`.
        LearnerError: what else the learner says.
    """
    from rich.live import Live  # noqa: PLC0415  (nobody waits for it who looks once)

    try:
        if output is Output.TABLE and sys.stdout.isatty():
            console = console_of(output)
            first = _what_fits(table(once()), console)
            with Live(first, console=console, auto_refresh=False) as live:
                while True:
                    found = table(_next(once, every_seconds, clock, sleep))
                    live.update(_what_fits(found, live.console), refresh=True)
        _print(once(), table, output, first=True)
        while True:
            _print(_next(once, every_seconds, clock, sleep), table, output, first=False)
    except KeyboardInterrupt:
        return


def _what_fits(found: Tables, console: Console) -> RenderableType:
    """A table, or its last lines where the screen is lower: what is new stands at the end of most."""
    from rich.segment import Segment, Segments  # noqa: PLC0415

    lines = console.render_lines(found, pad=False)
    room = max(1, console.height - 2)
    if len(lines) <= room:
        return found
    above = len(lines) - room
    shown = [segment for line in lines[above:] for segment in (*line, Segment.line())]
    return Group(f"… {above} lines above", Segments(shown[:-1]))


def _next(
    once: Callable[[], Found], every_seconds: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> Found:
    """What is found after the pause; where no learner answers, as soon as one does."""
    sleep(every_seconds)
    away_since: float | None = None
    while True:
        try:
            found = once()
        except Unreachable as error:
            if away_since is None:
                away_since = clock()
                print(
                    f"no learner answers; waiting for one, for {AWAY_SECONDS:g} s at most", file=sys.stderr, flush=True
                )
            if clock() - away_since >= AWAY_SECONDS:
                raise Unreachable(f"no learner has answered for {AWAY_SECONDS:g} s; {error}") from error
            sleep(min(every_seconds, _LOOK_SECONDS))
            continue
        if away_since is not None:
            _remark("a learner answers again")
        return found


def _print(found: Found, table: Callable[[Found], Table], output: Output, *, first: bool) -> None:
    if output is Output.JSON:
        print(json.dumps(found))
    elif output is Output.CSV and not first and isinstance(shown := table(found), FittedTable):
        write_csv(shown, headings=False)
    else:
        if not first:
            print("---" if output is Output.YAML else "")  # or nobody could tell one look from the next
        show(output, found, table(found))
    sys.stdout.flush()


def _remark(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
