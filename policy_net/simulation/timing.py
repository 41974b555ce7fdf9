"""When the next decision is taken, and why.

Slots: at every multiple of the slot length. Events: with the next arrival or completion, but not before the debounce
is over, and at the latest one slot length after the decision before (a tick).
"""

from __future__ import annotations

import math

from policy_net.domain import Trigger
from policy_net.simulation.environment import DecideOn, Environment


def next_decision(
    environment: Environment, now: float, completion_seconds: float, arrival_seconds: float
) -> tuple[float, Trigger]:
    """The decision after one taken `now`, given the times of the next completion and arrival (or infinity)."""
    if environment.decide_on is DecideOn.SLOT:
        return _slot_start(now, environment.slot_seconds, after=True), Trigger.SLOT
    event = max(min(completion_seconds, arrival_seconds), now + environment.debounce_seconds)
    tick = now + environment.slot_seconds
    if event > tick:
        return tick, Trigger.SLOT
    return event, Trigger.ARRIVAL if arrival_seconds <= completion_seconds else Trigger.COMPLETION


def decision_on_arrival(environment: Environment, arrival_seconds: float, earliest: float) -> tuple[float, Trigger]:
    """The decision that an arrival at an empty cluster brings; under events not before `earliest`."""
    if environment.decide_on is DecideOn.SLOT:
        return _slot_start(arrival_seconds, environment.slot_seconds), Trigger.SLOT
    return max(arrival_seconds, earliest), Trigger.ARRIVAL


def _slot_start(time: float, slot_seconds: float, *, after: bool = False) -> float:
    """The first slot start at or after a time, or strictly after it; always a slot number times the length."""
    number = math.floor(time / slot_seconds) - 1
    while number * slot_seconds < time or (after and number * slot_seconds <= time):
        number += 1
    return number * slot_seconds
