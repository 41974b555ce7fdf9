"""Asynchronous training: each process of a job killed while blocks move; no sample is left out, none comes twice."""

from collections.abc import Callable
from pathlib import Path

import pytest
from forks import Forks
from live_job import COORDINATOR, LiveJob
from tiny_training import written

from elastic_runtime.checkpoint import latest_durable
from elastic_runtime.control.messages import RequestOutcome, Size
from elastic_runtime.protocol.plan import JobPhase

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]
STEPS = 120


def trickle(job: LiveJob, done: Callable[[], object], what: str) -> None:
    """Wait, and let one more batch be computed now and then: the longer it takes the more rarely, so that some stay."""
    pause_seconds, due = 0.01, job.now()

    def drip() -> None:
        nonlocal pause_seconds, due
        if job.now() >= due:
            job.allow(job.limit + 1)
            due = job.now() + pause_seconds
            pause_seconds *= 1.2

    job.until(lambda: drip() or done(), what)


def finish(job: LiveJob) -> list[int]:
    """Let it train to its end: all is told done; the blocks' versions."""
    job.allow(10**9)
    job.until(lambda: job.view.phase in {JobPhase.FINISHED, JobPhase.FAILED}, "the end")
    assert job.view.phase is JobPhase.FINISHED, job.story()
    job.until(lambda: set(job.pids) <= {COORDINATOR}, "the end of all processes")
    manifest = latest_durable(job.checkpoints)
    assert manifest is not None
    leases = manifest.position["leases"]
    assert (leases["next"][1], leases["held"], leases["returned"]) == (0, [], [])
    return [version for version, _, _ in written(job.checkpoints)]


def test_an_undisturbed_job_applies_each_batch_once(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path, steps=STEPS, environment={"ASYNCHRONOUS": "1"}) as job:
        assert set(finish(job)) == {STEPS}
        computed = [taken for worker in ("worker-0", "worker-1") for _, taken in job.notes(worker)]
        assert len(computed) == STEPS
        assert sorted(sum(computed, ())) == sorted(list(range(18)) * (STEPS * 6 // 18))


@pytest.mark.parametrize("victim", ["worker-1", "ps-0", "ps-1", COORDINATOR])
def test_a_resize_survives(forks: Forks, tmp_path: Path, victim: str) -> None:
    with LiveJob(forks, tmp_path, steps=STEPS, environment={"ASYNCHRONOUS": "1"}) as job:
        job.until(lambda: job.status().durable_step > 0, "a durable step")
        job.resize(2, 2)
        job.until(lambda: any(stage.moves for change in job.view.changes for stage in change.stages), "a change")
        job.kill(victim)
        # Nobody turns to the new owner before it has something to push, a replacement neither.
        trickle(job, lambda: job.outcome() is RequestOutcome.DONE, "the resize")
        assert job.status().target == Size(2, 2)
        versions = finish(job)
        assert job.view.generation == (2 if victim.startswith("ps") else 1)
        if victim == COORDINATOR:
            assert set(versions) == {STEPS}
        else:  # what nobody had been told of is done again: batches of one worker, or of both since the checkpoint
            assert STEPS <= min(versions) <= max(versions) < 2 * STEPS
