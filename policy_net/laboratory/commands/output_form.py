"""Forms in which `policy-net` prints results: a table for people; JSON, YAML and csv for programs."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer


class Form(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


OutputForm = Annotated[
    Form, typer.Option("-o", "--output", help="A table for people; JSON, YAML or csv, a line a row, for programs.")
]


def print_facts(facts: Any, rows: Sequence[Mapping[str, Any]], form: Form) -> None:
    """Print for programs.

    Args:
        facts: all that there is, plain JSON values.
        rows: what a csv has of it; what is nested has dotted names there.
        form: not TABLE, which each command draws by itself.
    """
    if form is Form.JSON:
        print(json.dumps(facts, indent=2))
    elif form is Form.YAML:
        import yaml  # noqa: PLC0415  (few ask for it)

        print(yaml.safe_dump(facts, sort_keys=False, allow_unicode=True), end="")
    elif form is Form.CSV:
        from policy_net.laboratory.training_runs import flat  # noqa: PLC0415

        lines = [flat(row) for row in rows]
        # A row may have a figure or nothing where another has several figures: then the several are columns.
        nested = {name.rpartition(".")[0] for line in lines for name in line}
        names = [name for name in dict.fromkeys(name for line in lines for name in line) if name not in nested]
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        for line in lines:
            writer.writerow(["" if line.get(name) is None else line[name] for name in names])
    else:
        raise ValueError(f"{form} is for people")
