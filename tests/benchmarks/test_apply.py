"""The benchmark of a server's step: its arithmetic, on a clock that is given."""

from itertools import count

import pytest

from benchmarks.dataplane.apply import apply_over_add


def test_speeds_are_the_bytes_that_the_arithmetic_needs() -> None:
    ticks = count()
    found = apply_over_add([0.04], rounds=3, clock=lambda: float(next(ticks)))
    assert [run["optimizer"] for run in found["runs"]] == ["sgd", "momentum", "adam"]
    assert [run["apply_over_add"] for run in found["runs"]] == pytest.approx([1, 5 / 3, 7 / 3])
    assert found["apply_over_add"] == pytest.approx(1.0)
    assert found["runs"][2]["apply_gb_per_second"] == pytest.approx(7 * 0.04e6 / 1e9)
    assert found["runs"][2]["add_gb_per_second"] == pytest.approx(3 * 0.04e6 / 1e9)
