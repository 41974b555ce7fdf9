"""Optimus as the code that the DL2 authors published has it, for comparison with its figures.

Every job first gets a worker, then a parameter server; then the task that saves most remaining time under the *true*
speeds goes to its job, a server if both roles save the same, until none saves time, or one does not fit where it is
tried (`authors_nodes.py`). A job whose best task is one beyond its cap gets nothing more, even where the other role
would help. `optimus` fits speeds online, as its paper does.
Source: the authors' simulator, as published with DL2 (§6.1), after Optimus (EuroSys 2018 §4.1). Own code, same
behaviour.
Deviation: first tasks go out by arrival; there, in no defined order. Beyond 16 tasks of a role, or 64 workers without
servers, there are no speeds here, so no task is best there, and the other role grows on.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from policy_net.baselines.authors_nodes import ONE_WORKER, AuthorsNodes
from policy_net.baselines.needs import remaining_samples
from policy_net.domain import (
    Allocation,
    ClusterState,
    Decision,
    Job,
    PolicyContext,
    Progress,
    SpeedModel,
    Trigger,
    speed_at,
)
from policy_net.policy import true_speeds_for

ONE_SERVER = Allocation(ps=1)
NEVER = 1e30
"""Seconds to the end in an allocation that does not train: finite, so that two of them compare equal."""


class OptimusAuthorsPolicy:
    """Task by task to the largest saving under given speeds, on the authors' nodes."""

    name = "optimus-authors"

    def __init__(self, speeds: SpeedModel) -> None:
        self.speeds = speeds

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Grant task by task."""
        nodes = AuthorsNodes(state)
        queue: list[tuple[float, int, Allocation]] = []
        for index, job in enumerate(state.jobs):
            self._enqueue(queue, index, job, Allocation())
        while queue:
            negative_saving, index, task = heapq.heappop(queue)
            if negative_saving >= 0:
                break
            job, held = state.jobs[index], nodes.held[index]
            if held.workers + task.workers > job.max_workers or held.ps + task.ps > job.max_ps:
                continue
            if not nodes.grant(index, task):
                break
            self._enqueue(queue, index, job, nodes.held[index])
        return nodes.decision()

    def _enqueue(self, queue: list[tuple[float, int, Allocation]], index: int, job: Job, held: Allocation) -> None:
        saving, task = self._best(job, held)
        heapq.heappush(queue, (-saving, index, task))

    def _best(self, job: Job, held: Allocation) -> tuple[float, Allocation]:
        """The next task of a job, and the seconds that it saves; without end as long as the job cannot train."""
        if held.workers == 0:
            return float("inf"), ONE_WORKER
        if held.ps == 0 and job.kind.uses_ps:
            return float("inf"), ONE_SERVER
        grid = self.speeds.grid(job.job_type)
        now = _seconds(job, speed_at(grid, held.ps, held.workers))
        by_worker = by_ps = 0.0
        if held.workers < job.kind.most_workers:
            by_worker = now - _seconds(job, speed_at(grid, held.ps, held.workers + 1))
        if held.ps < job.kind.most_ps:
            by_ps = now - _seconds(job, speed_at(grid, held.ps + 1, held.workers))
        return (by_ps, ONE_SERVER) if by_ps >= by_worker and job.kind.uses_ps else (by_worker, ONE_WORKER)

    def observe(self, progress: Sequence[Progress]) -> None:
        """Nothing to learn: the speeds are known."""


def _seconds(job: Job, speed: float) -> float:
    """Seconds to the end at a speed in samples/s."""
    return remaining_samples(job) / speed if speed > 0 else NEVER


def build_optimus_authors(context: PolicyContext) -> OptimusAuthorsPolicy:
    """Build the policy registered as `optimus-authors`. Raises BadInput without true speeds."""
    return OptimusAuthorsPolicy(true_speeds_for("optimus-authors", context))
