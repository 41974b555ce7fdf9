"""Columns of tables: paths into objects, and times as kubectl says them."""

from typing import Any

import pytest
from apiserver.answers.columns import at_path, columns_of, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (8 * 3600 - 60, "7h59m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (7 * 86400 + 3600, "7d1h"),
        (8 * 86400 + 3600, "8d"),
        (730 * 86400, "2y"),
        (731 * 86400, "2y1d"),
    ],
)
def test_durations(seconds: int, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".spec.size", 2),
        (".spec.none", None),
        (".spec.size.none", None),
        (".list[1]", "b"),
        (".list[7]", None),
        ('.conditions[?(@.type=="Ready")].status', "True"),
        ('.conditions[?(@.type=="None")].status', None),
        (".labels['a.b/c']", "x"),
        ("nonsense", None),
    ],
)
def test_paths(path: str, value: Any) -> None:
    conditions = [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]
    found = {"spec": {"size": 2}, "list": ["a", "b"], "conditions": conditions, "labels": {"a.b/c": "x"}}
    assert at_path(found, path) == value


def test_a_resource_without_columns_shows_its_age() -> None:
    [_, age] = columns_of("things.x", (), is_custom=True)
    assert age.cell({"metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"}}, 90.0) == "90s"
