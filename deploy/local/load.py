"""Load of the demo's clusters over simulated time: moments that all policies share, and clusters added up."""

from __future__ import annotations

from collections.abc import Sequence

from policy_net.laboratory.simulation.load import Load, nearly_done

MOMENTS = 121
"""Points of a curve: more than a page can show apart."""


def moments(policies: Sequence[Sequence[Load]]) -> list[float]:
    """Moments evenly apart, from zero until nearly all jobs have ended under every policy.

    Args:
        policies: of each the loads of all clusters; the last few jobs may run alone for days, which says little.
    """
    end = max(nearly_done([seconds for load in loads for seconds in load.ends]) for loads in policies)
    return [end * index / (MOMENTS - 1) for index in range(MOMENTS)]


def summed(loads: Sequence[Load], at: Sequence[float]) -> tuple[list[float], list[float]]:
    """GPUs in use and jobs that wait at these moments, clusters together."""
    found = [[load.at(seconds) for load in loads] for seconds in at]
    return (
        [float(sum(used for used, _ in every)) for every in found],
        [float(sum(waits for _, waits in every)) for every in found],
    )
