"""Every result of every command in all forms: JSON equals YAML, a csv is whole, and wide leaves nothing out.

A command runs once, and what it hands over is printed in each form: no two results of a second are the same.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
import yaml
from command_place import DONE, ended
from command_table import SOUND, Place, commands

from foundation import output
from foundation.output import Form

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("somewhere_else")]

WITH_FORMS = [name for name in DONE if any("--output" in parameter.opts for parameter in commands()[name].params)]
SAID_OTHERWISE = frozenset(
    {
        "policy-net replay",
        "policy-net train",
        "policy-net tune",
        "cluster-agent cancel",
        "cluster-agent delete",
        "cluster-agent submit",
        "elastic-run delete",
    }
)
"""People are told as it happens, or beside more; nothing for them is handed over when a program reads."""


def in_json(words: list[str]) -> list[str]:
    return words if "-o" in words else [*words, "-o", "json"]


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a csv, apart at empty lines."""
    found: list[list[list[str]]] = [[]]
    for row in csv.reader(io.StringIO(text), strict=True):
        if row:
            found[-1].append(row)
        else:
            found.append([])
    return found


@pytest.mark.parametrize("command", WITH_FORMS)
def test_a_result_has_five_forms(
    command: str, place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[Any] = []
    print_result = output.print_result

    def kept(form: Form, *result: Any) -> None:
        handed.append(result)
        print_result(form, *result)

    monkeypatch.setattr(output, "print_result", kept)
    code, out, err = ended(command, in_json(SOUND[command](place)), capsys)
    assert code == 0, err
    assert len(handed) == 1, "a result is printed by foundation.output, once"
    said = {}
    for form in Form:
        print_result(form, *handed[0])
        said[form] = capsys.readouterr().out
    assert said[Form.JSON] == out
    assert yaml.safe_load(said[Form.YAML]) == json.loads(out)
    for table in tables(said[Form.CSV]):
        heading, *rows = table
        assert {len(row) for row in rows} <= {len(heading)}
        assert [cell for row in table for cell in row if cell.startswith("…") or cell.endswith("…")] == []
    assert "no room for" not in said[Form.WIDE]
    assert "…" not in said[Form.WIDE]
    for form in (Form.TABLE, Form.WIDE):
        assert said[form].strip() or command in SAID_OTHERWISE
