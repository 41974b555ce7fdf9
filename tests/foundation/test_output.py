"""Results in five forms, once and again and again."""

import csv
import io
import json
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import pytest
import yaml
from rich.console import Console, Group

from foundation.output import Form, console_of, show, watch, what_fits
from foundation.tables import NOTHING, Column, FactSheet, FittedTable

Capture = pytest.CaptureFixture[str]


class Word(StrEnum):
    RUNNING = "running"


def table(facts: dict[str, int]) -> FittedTable:
    return FittedTable("", [Column("step")], [(str(facts["step"]),)])


def polls(*steps: int, interrupted: bool = False) -> Any:
    for step in steps:
        yield {"step": step}
    if interrupted:
        raise KeyboardInterrupt


def test_json_and_yaml_have_the_same_facts(capsys: Capture) -> None:
    twice = {"low": 1}
    facts = {"name": "ö", "state": Word.RUNNING, "one": twice, "two": twice, "parts": (1, 2), "no": None, "text": "no"}
    show(Form.JSON, facts, "said")
    as_json = capsys.readouterr().out
    assert as_json == json.dumps(facts, indent=2) + "\n"
    show(Form.YAML, facts, "said")
    as_yaml = capsys.readouterr().out
    assert yaml.safe_load(as_yaml) == json.loads(as_json)
    assert "ö" in as_yaml
    assert "&" not in as_yaml


def test_people_see_a_table_or_a_sentence_which_is_made_only_for_them(capsys: Capture) -> None:
    def never() -> FittedTable:
        raise AssertionError("nobody sees it")

    show(Form.JSON, {"step": 1}, never)
    show(Form.CSV, {"step": 1}, never, [{"step": 1}])
    capsys.readouterr()
    show(Form.TABLE, {"step": 1}, lambda: table({"step": 1}))
    show(Form.WIDE, {"step": 1}, "it is [b]done[/b] :+1:")
    assert capsys.readouterr().out == "step\n────\n1\nit is [b]done[/b] :+1:\n"


def test_wide_leaves_out_and_shortens_nothing(capsys: Capture) -> None:
    columns = [Column("name"), *(Column(f"column {number}", 1) for number in range(60))]
    many = FittedTable("", columns, [["n" * 200, *["12345"] * 60]])
    show(Form.TABLE, {}, many)
    assert "no room for" in capsys.readouterr().out
    show(Form.WIDE, {}, Group(many, FactSheet("", [("said", "word " * 200)])))
    lines = capsys.readouterr().out.splitlines()
    assert [len(line.split()) for line in lines] == [1 + 2 * 60, 1, 61, 201]
    assert "n" * 200 in lines[2]


def test_a_csv_has_the_cells_of_programs_and_of_a_sheet_a_row_a_fact(capsys: Capture) -> None:
    some = FittedTable("", [Column("a\nb"), Column("c")], [("1 h", NOTHING)], for_programs=[("3600", NOTHING)])
    show(Form.CSV, {}, Group("in between", some, FactSheet("", [("job", "x, y"), ("", "z")]), "and a sentence"))
    assert capsys.readouterr().out == 'a b,c\n3600,\n\nfact,value\njob,"x, y"\njob,z\n'
    show(Form.CSV, {}, "it is done")
    assert capsys.readouterr().out == "fact,value\nresult,it is done\n"
    show(Form.CSV, {}, "two", [{"a": {"b": 1.5}, "c": None}, {"a": {"b": 2}, "c": "x\n\x1b[31m"}])
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows == [["a.b", "c"], ["1.5", ""], ["2", "x\\n\\x1b[31m"]]


def test_each_look_is_printed_below_the_one_before(capsys: Capture) -> None:
    watch(polls(1, 2, 2), table, Form.TABLE)
    assert capsys.readouterr().out.split() == ["step", "────", "1", "step", "────", "2", "step", "────", "2"]


@pytest.mark.parametrize(
    ("form", "said"),
    [(Form.JSON, '{"step": 1}\n{"step": 2}\n'), (Form.YAML, "step: 1\n---\nstep: 2\n"), (Form.CSV, "step\n1\n2\n")],
)
def test_json_is_a_line_a_look_yaml_a_document_and_csv_goes_on_until_an_interruption(
    form: Form, said: str, capsys: Capture
) -> None:
    watch(polls(1, 2, interrupted=True), table, form)
    assert capsys.readouterr() == (said, "")


@pytest.mark.parametrize(
    ("in_csv", "said"),
    [
        (lambda found: FactSheet("", [("step", str(found["step"]))]), "fact,value\nstep,1\n\nfact,value\nstep,2\n"),
        (lambda found: [found], "step\n1\n2\n"),
        (lambda found: [{f"of {found['step']}": 7}], "of 1\n7\n\nof 2\n7\n"),
    ],
)
def test_only_a_list_under_the_same_headings_goes_on_without_them(
    in_csv: Callable[[dict[str, int]], Any], said: str, capsys: Capture
) -> None:
    watch(polls(1, 2), table, Form.CSV, in_csv)
    assert capsys.readouterr().out == said


def test_nothing_to_look_at_prints_nothing(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    watch(polls(), table, Form.TABLE)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    watch(polls(), table, Form.TABLE)
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_the_last_look_stays(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    watch(polls(1, 23), table, Form.TABLE)
    shown = [word for word in capsys.readouterr().out.split() if not word.startswith("\x1b")]
    assert shown[-1] == "23"


def test_the_columns_that_a_file_has_are_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert console_of(Form.TABLE).width == 160
    monkeypatch.setenv("COLUMNS", "100")
    assert console_of(Form.TABLE).width == 100
    assert console_of(Form.WIDE).width > 10_000


def test_of_a_table_that_is_higher_than_the_screen_the_last_lines_are_shown() -> None:
    console = Console(width=40, height=8, file=io.StringIO(), force_terminal=False)
    table = FittedTable("", [Column("step")], [(str(step),) for step in range(30)])
    console.print(what_fits(table, console))
    shown = console.file.getvalue().split("\n")
    assert shown[0] == f"… {30 + 2 - 6} lines above"
    assert [line.strip() for line in shown[1:] if line.strip()] == [str(step) for step in range(24, 30)]
    low = FittedTable("", [Column("step")], [("1",)])
    assert what_fits(low, console) is low
