"""Every process of a job killed at every state of a resize, and in steady state: the numbers stay the same."""

from collections.abc import Callable
from pathlib import Path

import pytest
from forks import Forks
from live_job import LiveJob

from elastic_runtime.control.messages import RequestOutcome, Size
from elastic_runtime.plan import Change, Phase

pytestmark = pytest.mark.heavy


def moving(job: LiveJob) -> Change | None:
    """The confirmed change that moves blocks."""
    return next((change for change in job.view.changes if any(stage.moves for stage in change.stages)), None)


def registration(job: LiveJob) -> None:
    """A resize waits for the new server."""
    job.held.add("ps")
    job.resize(2, 2)
    job.until(lambda: job.allow_changes() or (job.view.wanted and job.view.phase is Phase.RESIZING), "a wanted server")


def proposal(job: LiveJob) -> None:
    """A worker has not voted yet."""
    registration(job)
    job.until(lambda: job.allow_changes() or job.view.proposal is None, "a resolved proposal")
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
NO_NEW_SERVER = {"steady", "registration"}


def test_what_an_undisturbed_job_computes_is_what_it_is_compared_with(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path) as job:
        job.finish()
        assert job.view.generation == 1


@pytest.mark.parametrize(
    ("victim", "state"),
    [
        (victim, state)
        for victim in ("ps-0", "ps-1", "worker-1", "coordinator")
        for state in STATES
        if victim != "ps-1" or state not in NO_NEW_SERVER
    ],
)
def test_a_resize_survives(forks: Forks, tmp_path: Path, victim: str, state: str) -> None:
    with LiveJob(forks, tmp_path, wired="worker-0") as job:
        job.train_until_durable()
        durable = job.status().durable_step
        STATES[state](job)
        job.kill(victim)
        for task in ("worker-0", "ps-1"):
            job.go_on(task)
        job.wire.mend()
        job.held.clear()
        if state != "steady":
            assert job.settle() is RequestOutcome.DONE, job.story()
            assert job.status().target == Size(2, 2)
        assert job.status().durable_step >= durable
        job.finish()
        loses_blocks = victim == "ps-0" or (victim == "ps-1" and state not in {"proposal", *NO_NEW_SERVER})
        assert job.view.generation == (2 if loses_blocks else 1)
