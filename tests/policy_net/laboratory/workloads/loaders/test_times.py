from pathlib import Path

import pytest

from policy_net.errors import MalformedRow
from policy_net.laboratory.csv_rows import CsvRow
from policy_net.laboratory.workloads.loaders.values import elapsed, moment, span, stated_moment

ROW = CsvRow(Path("f.csv"), 3, {})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01 00:00:10", 10),
        ("1970-01-01T00:00:10", 10),
        ("1970-01-01T00:00:10Z", 10),
        ("1970-01-01T01:00:10.5+01:00", 10.5),
        ("10", 10),
        ("10.0", 10),
        ("-3", -3),
        ("Unknown", None),
        ("None", None),
        ("nan", None),
        (" ", None),
        (None, None),
    ],
)
def test_a_moment_is_read_in_every_way_that_schedulers_write_it(text: str | None, seconds: float | None) -> None:
    assert moment(text, "t", ROW) == seconds


@pytest.mark.parametrize("text", ["yesterday", "2024-13-01", "2024-02-30T00:00:00", "1e300", "inf", "-inf", "12:00"])
def test_a_moment_that_is_none_is_named(text: str) -> None:
    with pytest.raises(MalformedRow, match=f"f.csv, line 3: t is '{text}'; write a time as"):
        moment(text, "t", ROW)


def test_a_moment_that_must_be_stated_is_missed() -> None:
    with pytest.raises(MalformedRow, match="t is 'Unknown'; state the time"):
        stated_moment("Unknown", "t", ROW)


def test_an_end_before_the_start_is_named_with_the_difference() -> None:
    assert span(1, 3, ("a", "b"), ROW) == 2
    with pytest.raises(MalformedRow, match="b lies 2 s before a"):
        span(3, 1, ("a", "b"), ROW)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:00", 0),
        ("01:02", 62),
        ("01:00:00", 3600),
        ("2-00:00:01", 172801),
        ("400-00:00:00", 34560000),
        ("0:1.5", 1.5),
    ],
)
def test_lengths_are_read(text: str, seconds: float) -> None:
    assert elapsed(text, "Elapsed", ROW) == seconds


@pytest.mark.parametrize("text", ["5", "1:2:3:4", "-1:00", "1-1", "a:b", "", "٣:٤", "1:00 h"])
def test_lengths_that_are_none_are_named(text: str) -> None:
    with pytest.raises(MalformedRow, match=r"Elapsed is .*write a length as"):
        elapsed(text, "Elapsed", ROW)
