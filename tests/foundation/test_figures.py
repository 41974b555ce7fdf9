"""Rows of a csv: names for what is nested, and one heading for all things."""

import json
import math
from pathlib import Path

from foundation.figures import flat, headed


def test_whatever_is_nested_becomes_a_line_that_json_can_hold() -> None:
    content = {"a": {"b": {"c": [1, 2]}}, "path": Path("x"), "nothing": None, "wild": math.inf}
    assert json.dumps(flat(content)) == '{"a.b.c": "1, 2", "path": "x", "nothing": null, "wild": null}'


def test_things_of_different_names_are_under_one_heading() -> None:
    assert headed([{"a": 1, "b": None}, {"a": 2.5, "b": {"low": 1, "high": 2}}, {"c": "x"}]) == (
        ["a", "b.low", "b.high", "c"],
        [[1, "", "", ""], [2.5, 1, 2, ""], ["", "", "", "x"]],
    )
    assert headed([]) == ([], [])
