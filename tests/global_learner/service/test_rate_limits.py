"""Rates of calls: a burst, then so many a minute, for each caller and method alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from global_learner.errors import TooOften
from global_learner.identity import PEOPLE, Caller, CallerRole
from global_learner.service.lanes import Lane, RateLimits, lanes_of
from global_learner.settings import IdentitySettings, LearnerSettings


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


def test_rates_are_kept_where_certificates_tell_callers_apart() -> None:
    for identity, kept in ((None, False), (IdentitySettings(), True)):
        settings = LearnerSettings(
            state_dir=Path("state"), initial_policy=Path("policy"), listen="127.0.0.1:7100", identity=identity
        )
        lanes = lanes_of(settings, message_bytes=1 << 20, clock=Clock())
        north = Caller("north", CallerRole.CLUSTER)
        for _ in range(settings.calls.burst):
            assert lanes.lane(north, "FetchPolicy") is Lane.REGISTRY
        if kept:
            with pytest.raises(TooOften):
                lanes.lane(north, "FetchPolicy")
        else:
            assert lanes.lane(north, "FetchPolicy") is Lane.REGISTRY
        assert {lanes.lane(Caller("ada", role), "FetchPolicy") for role in PEOPLE} == {Lane.OPERATORS}
