"""Fair sharing: every job gets one bundle (a worker and a parameter server) in turn until nothing more fits.

Source: DRF (Ghodsi et al., NSDI 2011) as DL2 §6.1 uses it for its default scheduler and its warm start.
Deviation: progressive filling goes round by round in arrival order rather than to the job with the least dominant
share. With equal demands the two are the same; where demands differ, equal numbers of bundles are what the simulated
references of DL2's workloads were computed with, and what an operator can predict. A job whose bundle does not fit is
passed over and the others go on (DL2's own code stops the whole round there).
"""

from __future__ import annotations

from collections.abc import Sequence

from policy_net.domain import Allocation, ClusterState, Decision, PolicyContext, Progress, Trigger
from policy_net.placement.capacity import open_capacity


class DrfPolicy:
    """Round-robin of bundles by arrival, elastic up to each job's caps."""

    name = "drf"

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Allocate one bundle a round to every job that still takes one."""
        capacity = open_capacity(state)
        fits, take = capacity.fits, capacity.take
        bundles = [0] * len(state.jobs)
        # Capacity only shrinks, so a job that did not fit once is out for the rest of this decision.
        taking = [
            (index, min(job.max_workers, job.max_ps), job.worker_demand, job.ps_demand)
            for index, job in enumerate(state.jobs)
            if job.max_workers and job.max_ps
        ]
        round_number = 0
        while taking:
            round_number += 1
            still_taking = []
            for entry in taking:
                index, most, worker_demand, ps_demand = entry
                if not fits(worker_demand, ps_demand):
                    continue
                take(worker_demand, ps_demand)
                bundles[index] = round_number
                if round_number < most:
                    still_taking.append(entry)
            taking = still_taking
        return Decision(
            {job.job_id: Allocation(count, count) for job, count in zip(state.jobs, bundles, strict=True) if count}
        )

    def observe(self, progress: Sequence[Progress]) -> None:
        """Nothing to learn: shares do not depend on speeds."""


def build_drf(context: PolicyContext) -> DrfPolicy:  # noqa: ARG001  (needs neither seed nor speeds)
    """Build the policy registered as `drf`."""
    return DrfPolicy()
