"""Completion times of one drawn world under several policies, each of which starts from nothing.

A module of its own, as the pool's processes cannot import what stands in a `__main__`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import policy_net.baselines
import policy_net.set_policy  # noqa: F401  (both register the policies' names)
from benchmarks.one_machine.worlds import OwnTypes, machine_world
from policy_net.domain import PolicyContext
from policy_net.laboratory.simulation.replay import replay
from policy_net.policy import build_policy

BASE = "fifo"
"""What people do who share a machine by taking turns: the sizes that jobs ask for, in the order of arrival."""


def log_ratios(policies: Sequence[str], number: int) -> list[float]:
    """Of every policy in one world, the log of its average JCT over that of `fifo`.

    Raises:
        UnknownPolicy: one of them has not been registered.
    """
    base, *others = (average_jct_seconds(policy, number) for policy in (BASE, *policies))
    return [math.log(other / base) for other in others]


def average_jct_seconds(policy: str, number: int) -> float:
    """Average completion time of a world's jobs under a policy that starts from nothing."""
    speeds = OwnTypes()
    workload, environment = machine_world(number)
    acting = build_policy(policy, PolicyContext(true_speeds=speeds, measured_speeds=speeds))
    return float(replay(workload, environment, acting, speeds).to_json()["avg_jct_seconds"])
