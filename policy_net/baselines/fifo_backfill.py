"""First come, first served with backfilling: a later job may start when it fits and an earlier one does not.

Non-preemptive, not elastic; needs neither durations nor speeds.
Source: backfilling, Mu'alem and Feitelson (IEEE TPDS 2001).
Deviation: no reservation for the head of the queue, which would need durations (EASY); large jobs may wait long.
"""

from __future__ import annotations

from policy_net.baselines.fifo import FifoPolicy
from policy_net.domain import PolicyContext


def build_fifo_backfill(context: PolicyContext) -> FifoPolicy:  # noqa: ARG001  (needs neither seed nor speeds)
    """Build the policy registered as `fifo-backfill`."""
    return FifoPolicy("fifo-backfill", backfill=True)
