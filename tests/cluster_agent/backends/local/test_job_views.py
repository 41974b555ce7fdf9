"""Views of jobs that say what is not so: what others get and see stays sane, whatever a job claims."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cluster_agent.backends.local.backend import scheduled_job
from cluster_agent.backends.local.job_file import JobFile, Work
from cluster_agent.backends.local.job_processes import LocalMeasurement
from cluster_agent.backends.local.job_table import JobState, LocalJobRecord
from cluster_agent.backends.local.job_views import UsualEpoch, steps_per_epoch, user_facts
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import Allocation


def record(epochs: float | None, steps: int | None = None, **more: object) -> LocalJobRecord:
    work = None if epochs is None and steps is None else Work(epochs=epochs, steps=steps)
    file = JobFile(model_type="any", script=Path("/x.py"), work=work, elastic=True)
    values = {"name": "job", "number": 1, "file": file, "submitted_unix_seconds": 0.0, "state": JobState.RUNNING}
    return LocalJobRecord.model_validate({**values, **more})


def measured(samples: float, epoch: float, total_epochs: float = 0.0, steps: float = 0.0) -> LocalMeasurement:
    one = Allocation(1, 1)
    return LocalMeasurement(JobPhase.RUNNING, one, one, samples, epoch, total_epochs, fresh=True, steps=steps)


def test_one_that_trains_more_than_it_said_is_one_of_unknown_length() -> None:
    job = scheduled_job(record(1.0), measured(samples=50_000, epoch=50.0), UsualEpoch(1000.0))
    assert not job.work_known
    assert job.remaining_epochs >= 50.0, "as much again, as of any job that says nothing; and not almost nothing"
    assert user_facts(record(1.0), measured(50_000, 50.0), 10.0)["progress"] is None


def test_one_that_trains_less_than_it_said_counts_what_its_script_says_once_it_runs() -> None:
    job = scheduled_job(record(1000.0), measured(samples=500, epoch=0.5, total_epochs=1.0), UsualEpoch(1000.0))
    assert (job.total_epochs, job.remaining_epochs) == (1.0, 0.5)
    assert user_facts(record(1000.0), measured(500, 0.5, 1.0), 10.0)["progress"] == 0.5


def test_the_last_batch_may_go_a_little_beyond_the_end() -> None:
    assert user_facts(record(10.0), measured(1003, 10.03), 10.0)["progress"] == 1.0


def test_a_script_that_fails_again_and_again_and_gets_on_is_seen() -> None:
    failed = replace(measured(500, 0.5), failures=7, last_failure="worker-3: OSError: no file (at step 9)")
    facts = user_facts(record(10.0), failed, 10.0)
    assert (facts["failures"], facts["lastFailure"]) == (7, "worker-3: OSError: no file (at step 9)")
    assert facts["note"] == (
        "its script failed 7 times and was started again; last: worker-3: OSError: no file (at step 9)"
    )
    assert user_facts(record(10.0, state=JobState.DONE), failed, 10.0)["note"] == ""


def test_since_when_a_job_is_what_it_is() -> None:
    times = {"submitted_unix_seconds": 10.0, "training_since_unix_seconds": 20.0}
    times |= {"suspended_unix_seconds": 30.0, "ended_unix_seconds": 40.0}
    for state, held, since in (
        (JobState.QUEUED, False, 10.0),
        (JobState.QUEUED, True, None),
        (JobState.RUNNING, False, 20.0),
        (JobState.SUSPENDED, False, 30.0),
        (JobState.SUSPENDED, True, 30.0),
        (JobState.FAILED, False, 40.0),
    ):
        facts = user_facts(record(1.0, state=state, held=held, **times), LocalMeasurement(), 50.0)
        assert facts["stateSinceUnixSeconds"] == since
    starting = record(1.0, submitted_unix_seconds=10.0)
    assert user_facts(starting, LocalMeasurement(), 50.0)["stateSinceUnixSeconds"] is None


AMOUNTS = st.floats(0.0, 1e12)


@given(
    st.none() | st.floats(1e-9, 1e9) | st.integers(1, 10**12),
    *(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS),
)
def test_whatever_is_claimed_progress_is_a_share_and_work_a_number(
    said: float | int | None,
    samples: float,
    epoch: float,
    total: float,
    kept: float,
    per_epoch: float,
    steps: float,
    kept_steps: float,
) -> None:
    work = {"steps": said} if isinstance(said, int) else {"epochs": said}
    row = record(**{"epochs": None, **work}, samples=kept, samples_per_epoch=per_epoch, steps_per_epoch=kept_steps)
    now = measured(samples, epoch, total, steps)
    assert row.model_copy(update={"steps_per_epoch": steps_per_epoch(row, now)}) == LocalJobRecord.model_validate(
        {**row.model_dump(), "steps_per_epoch": steps_per_epoch(row, now)}
    )
    progress = user_facts(row, now, 1.0)["progress"]
    assert progress is None or 0.0 <= progress <= 1.0
    job = scheduled_job(row, now, UsualEpoch(1000.0))
    assert 0.0 < job.remaining_epochs < math.inf
    assert 0.0 < job.total_epochs < math.inf
    assert 0.0 < job.samples_per_epoch < math.inf
