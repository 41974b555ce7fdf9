"""Rates of calls: a burst, then so many a minute, for each caller and method alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from global_learner.errors import TooOften
from global_learner.service.rate_limits import RateLimits


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_passes_and_then_the_rate_holds() -> None:
    clock = Clock()
    rates = RateLimits({"Register": 60.0}, burst=3, clock=clock)
    for _ in range(3):
        rates.take("north", "Register")
    with pytest.raises(TooOften, match=r"Register: more than 60 a minute; come again in 1\.0 s"):
        rates.take("north", "Register")
    rates.take("south", "Register")
    rates.take("north", "Heartbeat")
    clock.now += 1.0
    rates.take("north", "Register")
    with pytest.raises(TooOften):
        rates.take("north", "Register")


@given(st.lists(st.floats(0.0, 5.0), max_size=80))
def test_no_pauses_let_more_through_than_burst_and_rate(pauses: list[float]) -> None:
    clock, taken = Clock(), 0
    rates = RateLimits({"Register": 60.0}, burst=5, clock=clock)
    for pause in pauses:
        clock.now += pause
        try:
            rates.take("north", "Register")
        except TooOften:
            continue
        taken += 1
    assert taken <= 5 + (clock.now - 1000.0) * 1.0 + 1e-6
