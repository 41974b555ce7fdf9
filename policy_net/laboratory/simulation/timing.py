"""When the next decision is taken, and why.

Slots: at every multiple of the slot length. Events: with the next arrival or completion, but not before the debounce
is over, and at the latest one slot length after the decision before (a tick). When nodes come or go, events mean a
decision at once: what a lost node held must go elsewhere. Under slots it waits for the next slot.
"""

from __future__ import annotations

import math

from policy_net.domain import Trigger
from policy_net.laboratory.simulation.environment import DecideOn, Environment


def next_decision(
    environment: Environment,
    now: float,
    completion_seconds: float,
    arrival_seconds: float,
    node_change_seconds: float = math.inf,
) -> tuple[float, Trigger]:
    """The decision after one taken `now`, given when a job next ends or arrives, or a node comes or goes (or never)."""
    if environment.decide_on is DecideOn.SLOT:
        return _slot_start(now, environment.slot_seconds, after=True), Trigger.SLOT
    event = max(min(completion_seconds, arrival_seconds), now + environment.debounce_seconds)
    tick = now + environment.slot_seconds
    if node_change_seconds <= min(event, tick):
        return node_change_seconds, Trigger.NODE_CHANGE
    if event > tick:
        return tick, Trigger.SLOT
    return event, Trigger.ARRIVAL if arrival_seconds <= completion_seconds else Trigger.COMPLETION


def decision_on_arrival(environment: Environment, arrival_seconds: float, earliest: float) -> tuple[float, Trigger]:
    """The decision that an arrival at an empty cluster brings; under events not before `earliest`."""
    if environment.decide_on is DecideOn.SLOT:
        return _slot_start(arrival_seconds, environment.slot_seconds), Trigger.SLOT
    return max(arrival_seconds, earliest), Trigger.ARRIVAL


def decision_on_nodes(environment: Environment, nodes_back_seconds: float) -> tuple[float, Trigger]:
    """The decision that the first node brings to a cluster that had none left."""
    if environment.decide_on is DecideOn.SLOT:
        return _slot_start(nodes_back_seconds, environment.slot_seconds), Trigger.SLOT
    return nodes_back_seconds, Trigger.NODE_CHANGE


def _slot_start(time: float, slot_seconds: float, *, after: bool = False) -> float:
    """The first slot start at or after a time, or strictly after it; always a slot number times the length."""
    number = math.floor(time / slot_seconds) - 1
    while number * slot_seconds < time or (after and number * slot_seconds <= time):
        number += 1
    return number * slot_seconds
