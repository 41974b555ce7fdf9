"""DRF and SRTF as the code that the DL2 authors published has them, for comparison with its figures.

- `drf-authors`: one bundle at a time to the job with the least dominant share, ties by arrival.
- `srtf-authors`: as many bundles as its caps allow to one job after the other, by the *share* of its epochs that is
  left, whatever their number: a short job that has just begun comes after a long one that is under way.

Both end with the first bundle that does not fit where it is tried (`authors_nodes.py`). That helps DRF: more workers
often train more slowly. `drf` and `srtf` are what their papers define.
Source: the authors' simulator, as published with DL2 (§6.1). Own code, same behaviour.
Deviation: there, jobs that tie in everything come in no defined order; here by arrival.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from policy_net.baselines.authors_nodes import AuthorsNodes, bundle_of, most_bundles
from policy_net.domain import Allocation, ClusterState, Decision, Job, Progress, Resources, Trigger


class DrfAuthorsPolicy:
    """Bundles by dominant share until one does not fit."""

    name = "drf-authors"

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Grant bundle by bundle."""
        nodes, total = AuthorsNodes(state), state.total
        queue = [(0.0, index) for index, job in enumerate(state.jobs) if most_bundles(job)]
        while queue:
            _, index = queue[0]
            job = state.jobs[index]
            if not nodes.grant(index, bundle_of(job)):
                break
            held = nodes.held[index]
            if held.workers < most_bundles(job):
                heapq.heapreplace(queue, (_dominant_share(job, held, total), index))
            else:
                heapq.heappop(queue)
        return nodes.decision()

    def observe(self, progress: Sequence[Progress]) -> None:
        """Nothing to learn: shares do not depend on speeds."""


class SrtfAuthorsPolicy:
    """Job after job to its caps, the least share of its epochs left first, until a bundle does not fit."""

    name = "srtf-authors"

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Grant job by job."""
        nodes = AuthorsNodes(state)
        for index in sorted(range(len(state.jobs)), key=lambda index: share_left(state.jobs[index])):
            job = state.jobs[index]
            if not all(nodes.grant(index, bundle_of(job)) for _ in range(most_bundles(job))):
                break
        return nodes.decision()

    def observe(self, progress: Sequence[Progress]) -> None:
        """Nothing to learn: the order does not depend on speeds."""


def share_left(job: Job) -> float:
    """The share of its epochs that a job still has to train, of those declared or guessed."""
    return job.remaining_epochs / job.total_epochs if job.total_epochs > 0 else 1.0


def _dominant_share(job: Job, held: Allocation, total: Resources) -> float:
    used = job.worker_demand * held.workers + job.ps_demand * held.ps
    return max(used.cpu_milli / total.cpu_milli if total.cpu_milli else 0.0, used.gpu / total.gpu if total.gpu else 0.0)
