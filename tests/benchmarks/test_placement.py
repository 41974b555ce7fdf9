import json

import pytest

from benchmarks.placement import main


@pytest.mark.parametrize("policy", ["drf", "oracle"])
def test_placing_costs_nothing_against_pooled_capacity_where_nothing_forces_it_to(policy: str, capsys) -> None:
    assert main(["--policy", policy, "--nodes", "5", "--jobs", "20", "--seeds", "1", "-o", "json"]) == 0
    (cost,) = json.loads(capsys.readouterr().out)
    assert (cost["spread"], cost["pack"], cost["worst"], cost["trimmed_tasks"]) == (1.0, 1.0, 1.0, 0)


@pytest.mark.parametrize("words", [["--seeds", "0"], ["--policy", "best"], ["--nodes", "0"]])
def test_an_option_that_cannot_be_used_is_one_line_and_exit_code_two(words: list[str], capsys) -> None:
    assert main([*words, "--jobs", "3"]) == 2
    _, err = capsys.readouterr()
    assert len(err.splitlines()) == 1
