"""Resizes that take tasks away or add workers, one after the other in one job; each is held for a test's worst."""

from __future__ import annotations

from dataclasses import dataclass

from live_job import COORDINATOR, LiveJob

from elastic_runtime.control.messages import RequestOutcome, Size
from elastic_runtime.protocol.plan import Change, Plan, Timeline


@dataclass(frozen=True)
class Kind:
    """One way to resize a job that has `before`, and at which states it is held."""

    before: Size
    after: Size
    states: tuple[str, ...]

    @property
    def grows(self) -> bool:
        return self.after.workers > self.before.workers

    @property
    def moves_blocks(self) -> bool:
        return self.after.servers != self.before.servers


KINDS = {
    "fewer-servers": Kind(Size(2, 2), Size(1, 2), ("proposal", "confirmed", "clock", "committed")),
    "more-workers": Kind(Size(1, 2), Size(1, 3), ("registration", "proposal", "confirmed", "clock")),
    "fewer-workers": Kind(Size(1, 3), Size(1, 2), ("proposal", "confirmed", "clock")),
}


def plan_of(job: LiveJob) -> Plan:
    """What holds once all that was decided has come."""
    return Timeline(job.view).at(2**62)


def in_order(tasks: tuple[str, ...]) -> list[str]:
    return sorted(set(tasks), key=lambda task: int(task.rpartition("-")[2]))


class HeldResize:
    """A resize that was asked for and stands at a state, with most of its tasks waiting.

    Attributes:
        tasks: by what they are in it: `changing` leaves or comes, `worker` and `server` stay.
    """

    def __init__(self, job: LiveJob, kind: Kind, state: str, number: int) -> None:
        self.job, self.kind, self.state, self.number = job, kind, state, number
        # A job that went back may have far to come to where it is let; a change before that would not be held.
        job.stand()
        job.catch_up()
        plan = plan_of(job)
        servers, workers = in_order(plan.owners), in_order(plan.workers)
        self.tasks = {"server": servers[0], "worker": workers[1], COORDINATOR: COORDINATOR}
        leaves = [] if kind.grows else [servers[-1] if kind.moves_blocks else workers[-1]]
        if leaves:
            self.tasks["changing"] = leaves[0]
        self._slow = workers[0]
        before = max((change.number for change in job.view.changes), default=0)
        if state == "registration":
            job.held.add("worker")
        if state == "proposal":
            job.pause(self._slow)  # and has not voted
        job.resize(kind.after.servers, kind.after.workers, f"resize-{number}", victims=leaves)
        if kind.grows:
            self._await_newcomer(set(workers))
        if state == "proposal":
            job.until(lambda: job.view.proposal is not None, "an open proposal")
        elif state != "registration":
            job.until(lambda: self._newest(before), "a confirmed change")
            self._go_on_to(self._newest(before))

    def release(self) -> None:
        """Whoever waited goes on; and the job carries out what was asked for, and goes back to its size."""
        job = self.job
        job.go_on(self._slow)
        job.held.clear()
        assert job.settle(f"resize-{self.number}") is RequestOutcome.DONE, job.story()
        assert job.status().target == self.kind.after
        back = f"back-{self.number}"
        job.resize(self.kind.before.servers, self.kind.before.workers, back)
        assert job.settle(back) is RequestOutcome.DONE, job.story()

    def _await_newcomer(self, before: set[str]) -> None:
        def newcomers() -> list[str]:
            known = {*self.job.view.wanted, *(member.task for member in self.job.view.members)}
            return [task for task in known if task.startswith("worker") and task not in before]

        self.job.until(newcomers, "a new worker")
        (self.tasks["changing"],) = newcomers()

    def _newest(self, before: int) -> Change | None:
        changes = [change for change in self.job.view.changes if change.number > before]
        return changes[-1] if changes else None

    def _go_on_to(self, change: Change | None) -> None:
        assert change is not None
        job = self.job
        if self.state == "clock":  # the first blocks are on their way, or the new list of workers holds
            job.allow(change.clock + 1)
            job.until(lambda: job.begun(change.clock), "the clock")
        elif self.state == "committed":
            job.allow(change.clock + len(change.stages) + 1)
            job.until(lambda: job.view.committed >= change.number, "the commit")
