"""Schedulers of other kinds than those that ship, to keep the policy interface open for them."""

from __future__ import annotations

from collections.abc import Sequence

from policy_net.domain import Allocation, ClusterState, Decision, Job, PolicyContext, Progress, Resources, Trigger
from policy_net.placement.capacity import Capacity, open_capacity


def _tasks(job: Job, allocation: Allocation) -> tuple[Resources, ...]:
    return (job.worker_demand,) * allocation.workers + (job.ps_demand,) * allocation.ps


class JobSelection:
    """Starts waiting jobs at the size they asked for and lets them run to the end, as SCHED2 does.

    It looks at the first ten waiting jobs, shortest first; the rest of the queue waits.
    """

    name = "sample-job-selection"
    window = 10

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        capacity = open_capacity(state)
        allocation: dict[str, Allocation] = {}
        running = [job for job in state.jobs if job.current == job.requested and job.current.tasks]
        waiting = [job for job in state.jobs if job not in running][: self.window]
        for job in running + sorted(waiting, key=lambda job: job.remaining_epochs * job.samples_per_epoch):
            if job.requested.workers > job.max_workers or job.requested.ps > job.max_ps:
                continue
            if capacity.fits(*_tasks(job, job.requested)):
                capacity.take(*_tasks(job, job.requested))
                allocation[job.job_id] = job.requested
        return Decision(allocation, reasons=(f"waiting:{len(state.jobs) - len(allocation)}",))

    def observe(self, progress: Sequence[Progress]) -> None:
        """Sizes are fixed: nothing to learn."""


class EventDriven:
    """Decides anew for the first three jobs when something happens, and keeps what there is at a tick, as Chic does."""

    name = "sample-event-driven"
    scheduled_jobs = 3
    most_of_a_role = 6

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        capacity = open_capacity(state)
        scheduled = state.jobs[: self.scheduled_jobs]
        if trigger is Trigger.SLOT and any(job.current.tasks for job in scheduled):
            return self._keep(scheduled, capacity)
        held = {job.job_id: Allocation() for job in scheduled}
        growing = list(scheduled)
        while growing:
            growing = [job for job in growing if self._grow(job, held, capacity)]
        return Decision({job_id: given for job_id, given in held.items() if given.tasks})

    def _keep(self, scheduled: Sequence[Job], capacity: Capacity) -> Decision:
        allocation = {}
        for job in scheduled:
            tasks = _tasks(job, job.current)
            if tasks and capacity.fits(*tasks):
                capacity.take(*tasks)
                allocation[job.job_id] = job.current
        return Decision(allocation)

    def _grow(self, job: Job, held: dict[str, Allocation], capacity: Capacity) -> bool:
        have = held[job.job_id]
        more = Allocation(1, 1 if job.kind.uses_ps else 0) if have.tasks else job.smallest
        then = Allocation(have.workers + more.workers, have.ps + more.ps)
        if then.workers > min(job.max_workers, self.most_of_a_role) or then.ps > min(job.max_ps, self.most_of_a_role):
            return False
        if not capacity.fits(*_tasks(job, more)):
            return False
        capacity.take(*_tasks(job, more))
        held[job.job_id] = then
        return True

    def observe(self, progress: Sequence[Progress]) -> None:
        """Decides on the state alone."""


def build_job_selection(context: PolicyContext) -> JobSelection:
    return JobSelection()


def build_event_driven(context: PolicyContext) -> EventDriven:
    return EventDriven()
