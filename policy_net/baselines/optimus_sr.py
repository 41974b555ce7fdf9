"""Optimus with the shortest job admitted first.

First grants go by believed remaining time instead of by arrival; from there on it is Optimus. On real clusters, where a
few jobs are longer than all others together, order matters more than sizes: this is the strongest heuristic there.
Needs durations, and speeds, which it fits online. Preemptive, elastic.
Source: our own, on Optimus (EuroSys 2018) §4.1.
"""

from __future__ import annotations

from policy_net.baselines.optimus import OptimusPolicy
from policy_net.domain import PolicyContext
from policy_net.throughput.parametric import OnlineFit


def build_optimus_sr(context: PolicyContext) -> OptimusPolicy:  # noqa: ARG001  (plans on its own beliefs, no truth)
    """Build the policy registered as `optimus-sr`."""
    beliefs = OnlineFit()
    return OptimusPolicy("optimus-sr", beliefs, beliefs, shortest_first=True)
