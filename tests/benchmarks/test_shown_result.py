"""A benchmark's result: JSON for programs; for people its rows as a table, then each other figure in a line."""

import json
from pathlib import Path

import pytest

from benchmarks.command import parser_of, show, workplace

RESULT = {"runs": [{"name": "a", "share": 0.25, "more": 1}, {"name": "longer", "share": 1.0, "more": 2}], "seeds": 3}


def test_programs_get_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    show(RESULT, "json", "runs", ("name",))
    assert json.loads(capsys.readouterr().out) == RESULT


def test_people_get_the_columns_that_count_and_the_other_figures(capsys: pytest.CaptureFixture[str]) -> None:
    show(RESULT, "table", "runs", ("name", "share"))
    heading, first, second, seeds = capsys.readouterr().out.splitlines()
    assert heading.split() == ["name", "share"]
    assert (first.split(), second.split()) == (["a", "0.25"], ["longer", "1.0"])
    assert len(heading) == len(first) == len(second)
    assert seeds.split() == ["seeds", "3"]


def test_a_run_without_rows_has_a_heading(capsys: pytest.CaptureFixture[str]) -> None:
    show({"runs": [], "seeds": 3}, "table", "runs", ("name",))
    assert capsys.readouterr().out.split() == ["name", "seeds", "3"]


def test_the_folder_lies_where_it_was_asked_for_and_is_gone_afterwards(tmp_path: Path) -> None:
    with workplace("trial", tmp_path) as (folder, reported):
        reported("working")
        assert folder.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_a_form_that_is_none_is_refused() -> None:
    with pytest.raises(SystemExit):
        parser_of("trial", None).parse_args(["-o", "pages"])
