"""How far an update's step is shortened because the head moved on while the gradient was computed.

The *learning rate* is scaled, not the gradient: Adam divides by the gradient's own size and would cancel that.
With N clusters at equal pace every gradient is N−1 steps old when it arrives; that much is the price of asynchrony, is
what the learning rate was chosen for, and costs nothing here. Only the excess over it shortens the step: an update that
is another round of the fleet late (excess = N) takes half a step, two rounds a third.
Source: Zhang et al. 2016, "Staleness-aware async-SGD" (rate divided by staleness).
Deviation: theirs divides by the absolute staleness, which would shrink every step of a large fleet.
"""

from __future__ import annotations


def excess_staleness(staleness: int, active_clusters: int) -> int:
    """Head steps beyond what the other active clusters explain; 0 if there are none."""
    return max(0, staleness - (max(active_clusters, 1) - 1))


def staleness_scale(staleness: int, active_clusters: int) -> float:
    """Factor on the learning rate, in (0, 1]: 1 / (1 + excess / active)."""
    active = max(active_clusters, 1)
    return 1.0 / (1.0 + excess_staleness(staleness, active) / active)
