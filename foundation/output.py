"""Results of every program in the form that is asked for with `-o`, once or again and again.

JSON and YAML have the same facts; a csv has what stands in the table, whole and as a program reads it: a row a thing,
or of one thing a row a fact. Modules are loaded where they are used: half of the time of a short command is its
imports.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import typer

from foundation.figures import headed
from foundation.python310 import StrEnum

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType

    from foundation.tables import FactSheet, FittedTable


class Form(StrEnum):
    """How results are printed."""

    TABLE = "table"
    WIDE = "wide"
    CSV = "csv"
    JSON = "json"
    YAML = "yaml"

    @property
    def for_people(self) -> bool:
        """Whether it is a table, with what else is said to people."""
        return self in (Form.TABLE, Form.WIDE)


Output = Annotated[
    Form,
    typer.Option("-o", "--output", help="A table for people; wide: all columns; csv, JSON or YAML for programs."),
]
Shown: TypeAlias = "RenderableType | Callable[[], RenderableType]"
"""What people see: a table, facts about one thing, a group of both and of sentences, or a sentence."""
Csv: TypeAlias = "FittedTable | FactSheet | Group | Sequence[Mapping[str, Any]]"
"""What a csv has: a table's cells, or things as JSON has them, a row each."""
Found = TypeVar("Found")


def show(form: Form, facts: Any, shown: Shown, in_csv: Csv | Callable[[], Csv] | None = None) -> None:
    """Print a result.

    Args:
        shown: to people; where it is a function, it is called only if it is needed.
        in_csv: what a csv has, likewise; unless given, the tables that people see, or their sentence.
    """
    print_result(form, facts, shown, in_csv)
    sys.stdout.flush()


def print_result(form: Form, facts: Any, shown: Shown, in_csv: Csv | Callable[[], Csv] | None) -> None:
    """As `show`, without seeing that it reaches its reader."""
    if form is Form.JSON:
        print(json.dumps(facts, indent=2))
    elif form is Form.YAML:
        print(_as_yaml(facts), end="")
    elif form is Form.CSV:
        _print_csv(_drawn(shown) if in_csv is None else in_csv() if callable(in_csv) else in_csv)
    else:
        drawn = _drawn(shown)
        if isinstance(drawn, str):
            print(drawn)
        else:
            console_of(form).print(drawn)


def watch(
    polls: Iterable[Found],
    shown: Callable[[Found], RenderableType],
    form: Form,
    in_csv: Callable[[Found], Csv] | None = None,
    facts: Callable[[Found], Any] = lambda found: found,
) -> None:
    """Show look after look until there is none any more, or until Ctrl-C, which is no error.

    On a terminal a table stays where it is; everything else is printed below what was printed before: JSON on one line
    each, so that a program can read it as it comes, YAML as a document each, a list's csv under its first headings.
    `in_csv` is as for `show`; `facts`, as JSON and YAML have them, are what is found unless given.
    """
    try:
        if form is Form.TABLE and sys.stdout.isatty():
            _watch_in_place(iter(polls), shown)
            return
        headings: list[str] | None = None
        for number, found in enumerate(polls):
            if form is Form.JSON:
                print(json.dumps(facts(found)))
            elif form is Form.CSV:
                headings = _print_csv(shown(found) if in_csv is None else in_csv(found), headings, again=number > 0)
            else:
                if number:
                    print("---" if form is Form.YAML else "")  # or nobody could tell one look from the next
                show(form, facts(found), lambda found=found: shown(found))  # type: ignore[misc]
            sys.stdout.flush()
    except KeyboardInterrupt:
        return


def console_of(form: Form) -> Console:
    """Where what people see is printed, as wide as it may be."""
    from foundation.tables import table_console  # noqa: PLC0415

    return table_console(wide=form is Form.WIDE)


def _drawn(shown: Shown) -> RenderableType:
    return shown() if callable(shown) else shown


def _as_yaml(facts: Any) -> str:
    import yaml  # noqa: PLC0415  (few ask for it)

    # Once through JSON: words of an enumeration become plain ones, and what stands twice is written twice.
    return str(yaml.safe_dump(json.loads(json.dumps(facts)), sort_keys=False, allow_unicode=True))


def _print_csv(content: Any, headings_above: list[str] | None = None, *, again: bool = False) -> list[str] | None:
    """Print all cells, whole; the headings under which more rows may come.

    Args:
        headings_above: under which a list that has the same goes on.
    """
    import csv  # noqa: PLC0415  (few ask for it)

    parts = [part for part in _parts(content) if part[0]]
    is_list = len(parts) == 1 and parts[0][2]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for number, (headings, cells, _) in enumerate(parts):
        if not (is_list and headings == headings_above):
            if number or again:
                print()
            writer.writerow(headings)
        writer.writerows(cells)
    return parts[0][0] if is_list else None


def _parts(content: Any) -> Iterator[tuple[list[str], Sequence[Sequence[Any]], bool]]:
    from rich.console import Group  # noqa: PLC0415

    from foundation.tables import NOTHING, FactSheet, FittedTable  # noqa: PLC0415

    if isinstance(content, str):
        content = FactSheet("", [("result", content)])
    if isinstance(content, FittedTable | FactSheet):
        cells = [["" if cell == NOTHING else cell for cell in row] for row in content.cells]
        of_programs = content.program_headings if isinstance(content, FittedTable) else []
        yield of_programs or content.headings, cells, isinstance(content, FittedTable)
    elif isinstance(content, Group):
        for part in content.renderables:
            if isinstance(part, FittedTable | FactSheet):
                yield from _parts(part)
    else:
        yield *headed(content), True  # without a thing there are no names, and nothing is printed


def _watch_in_place(polls: Iterator[Found], shown: Callable[[Found], RenderableType]) -> None:
    from rich.live import Live  # noqa: PLC0415  (nobody waits for it who looks once)

    first = next(polls, None)  # before the screen is taken: it may fail
    if first is None:
        return
    console = console_of(Form.TABLE)
    with Live(what_fits(shown(first), console), console=console, auto_refresh=False) as live:
        live.refresh()
        for found in polls:
            live.update(what_fits(shown(found), live.console), refresh=True)


def what_fits(drawn: RenderableType, console: Console) -> RenderableType:
    """What is shown, or its last lines where the screen is lower: what is new stands at the end of most."""
    from rich.console import Group  # noqa: PLC0415
    from rich.segment import Segment, Segments  # noqa: PLC0415

    lines = console.render_lines(drawn, pad=False)
    height = max(1, console.height - 2)
    if len(lines) <= height:
        return drawn
    above = len(lines) - height
    kept = [segment for line in lines[above:] for segment in (*line, Segment.line())]
    return Group(f"… {above} lines above", Segments(kept[:-1]))
