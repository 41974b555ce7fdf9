"""One decision while it is being made, action by action: what `LearnedPolicy` does with a network, for any agent.

Source: DL2 §4.1 (more than J jobs: batches of J in arrival order; a batch ends with void or when nothing can be given).
"""

from __future__ import annotations

from policy_net.dl2.batch import Batch, BatchEncoder
from policy_net.domain import Allocation, ClusterState, Decision
from policy_net.placement.capacity import open_capacity


class OpenDecision:
    """Batch after batch of the jobs of a state; batches without any choice are passed over."""

    def __init__(self, state: ClusterState, encoder: BatchEncoder) -> None:
        self.state = state
        self._encoder = encoder
        self._capacity = open_capacity(state)
        self._allocation: dict[str, Allocation] = {}
        self._next_job = 0
        self._something_runs = False
        self._batch: Batch | None = None
        self._open_next()

    @property
    def batch(self) -> Batch | None:
        """The batch that is being given to; None once the decision is complete."""
        return self._batch

    def act(self, index: int) -> None:
        """Take an admissible action of the present batch."""
        batch = self._batch
        if batch is None:
            raise RuntimeError("the decision is complete: there is nothing more to give")
        if index != batch.void:
            batch.grant(index)
        if index == batch.void or batch.only_void:
            self._close(batch)
            self._open_next()

    def decision(self) -> Decision:
        """What has been given; of a complete decision, to all jobs."""
        return Decision(dict(self._allocation))

    def _close(self, batch: Batch) -> None:
        self._something_runs = batch.something_runs
        self._allocation.update(batch.allocation())

    def _open_next(self) -> None:
        self._batch = None
        jobs, size = self.state.jobs, self._encoder.spec.jobs_per_batch
        while self._next_job < len(jobs):
            batch = Batch(
                jobs[self._next_job : self._next_job + size],
                self.state,
                self._capacity,
                self._encoder,
                something_runs=self._something_runs,
            )
            self._next_job += size
            if not batch.only_void:
                self._batch = batch
                return
            self._close(batch)
