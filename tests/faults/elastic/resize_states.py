"""The states of a resize from one server to two, each held until a test has done its worst."""

from collections.abc import Callable

from live_job import LiveJob

from elastic_runtime.protocol.plan import Change, JobPhase


def moving(job: LiveJob) -> Change | None:
    """The confirmed change that moves blocks."""
    return next((change for change in job.view.changes if any(stage.moves for stage in change.stages)), None)


def registration(job: LiveJob) -> None:
    """A resize waits for the new server."""
    job.held.add("ps")
    job.resize(2, 2)
    job.until(
        lambda: job.allow_changes() or (job.view.wanted and job.view.phase is JobPhase.RESIZING), "a wanted server"
    )


def proposal(job: LiveJob) -> None:
    """A worker has not voted yet."""
    registration(job)
    job.rest()  # or it might be a checkpoint that the worker is asked about, and has agreed to
    job.pause("worker-0")
    job.held.clear()
    job.until(lambda: job.view.proposal is not None and job.view.member("ps-1"), "an open proposal")


def confirmed(job: LiveJob) -> None:
    """All know the clock, which has not come."""
    job.resize(2, 2)
    job.until(lambda: job.allow_changes() or moving(job), "a confirmed change")


def blocks_move(job: LiveJob) -> None:
    """Blocks are on their way to the new server, which does not take them; the workers wait for it."""
    confirmed(job)
    change = moving(job)
    assert change is not None
    job.pause("ps-1")
    job.allow(change.clock + 1)
    job.until(lambda: job.begun(change.clock), "the clock")


def not_committed(job: LiveJob) -> None:
    """All blocks have moved, of which the coordinator does not hear: a worker's reports are held up."""
    confirmed(job)
    change = moving(job)
    assert change is not None
    job.allow(change.clock + 1)
    # The test may hear of the confirmation before the worker behind the wire does, who would never begin the clock.
    job.until(lambda: job.begun(change.clock), "the clock")
    job.wire.stall()
    last = change.clock + len(change.stages)
    job.allow(last + 1)
    job.until(lambda: job.begun(last), "the step after the last stage")
    assert job.view.committed < change.number


def committed(job: LiveJob) -> None:
    """The resize is over, for all but those that have to hear of it."""
    confirmed(job)
    change = moving(job)
    assert change is not None
    job.allow(change.clock + len(change.stages) + 1)
    job.until(lambda: job.view.committed >= change.number, "the commit")


STATES: dict[str, Callable[[LiveJob], None]] = {
    "steady": lambda job: None,
    "registration": registration,
    "proposal": proposal,
    "confirmed": confirmed,
    "blocks-move": blocks_move,
    "not-committed": not_committed,
    "committed": committed,
}
