"""What jobs did, as a policy may see it: sound numbers, whatever a coordinator counts."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from training_objects import job

from cluster_agent.backends.kubernetes.training.measured import Measured, current_of, progress_of, scheduled_job
from cluster_agent.backends.kubernetes.training.memory import Told
from elastic_runtime.control.messages import JobStatus, Size
from elastic_runtime.protocol.plan import Phase
from policy_net.domain import SUSPENDED, Allocation, Resources

DEMANDS = (Resources(1, 0), Resources(1, 0))


def told(at: float, samples: float, **more: Any) -> Told:
    stated = {"phase": Phase.RUNNING, "size": Size(1, 2), "target": Size(1, 2), "epoch": samples / 100, **more}
    return Told(JobStatus("digits", samples=samples, **stated), at)  # type: ignore[arg-type]


def test_a_size_is_measured_while_it_is_held() -> None:
    measured = Measured()
    for each in (told(0, 0), told(10, 100), told(20, 200), told(30, 220, phase=Phase.RESIZING, target=Size(1, 3))):
        measured.look(each)
    seen = scheduled_job(job(), measured, Allocation(2, 1), DEMANDS, 0.0)
    found = progress_of(seen, measured, Allocation(2, 1), 40.0, finished=False)
    assert (found.seconds, found.samples, found.allocation) == (20.0, 200.0, Allocation(2, 1))
    assert measured.run_seconds == 20.0


def test_one_that_went_back_is_measured_anew() -> None:
    measured = Measured()
    for each in (told(0, 0), told(10, 500), told(20, 300), told(30, 400)):
        measured.look(each)
    assert measured.hold is not None
    assert (measured.hold.seconds, measured.hold.to_samples - measured.hold.from_samples) == (10.0, 100.0)


def test_what_a_job_has_where_nobody_answers_or_is_believed() -> None:
    has = {"allocation": {"workers": 3, "ps": 1}, "startTime": "x"}
    assert current_of(job(status=has), None) == Allocation(3, 1)
    assert current_of(job(status=has), told(0, 0, size=Size(10**9, 1))) == Allocation(3, 1)
    assert current_of(job(status=has, suspend=True), None) == SUSPENDED
    assert current_of(job(), None) == SUSPENDED


def test_a_job_that_cannot_be_used_any_more_keeps_what_it_has() -> None:
    bad = job(status={"templateDigest": "other"})
    seen = scheduled_job(bad, Measured(), Allocation(2, 1), DEMANDS, 0.0)
    assert (seen.max_workers, seen.min_workers, seen.max_ps) == (2, 2, 1)


figures = st.floats() | st.integers(-10, 10**20).map(float)


@given(st.lists(st.tuples(figures, figures, figures, st.integers(-1, 300)), max_size=6), figures)
def test_a_policy_never_sees_what_cannot_be(counts: list[tuple[float, float, float, int]], whole: float) -> None:
    measured = Measured()
    for at, (samples, epoch, total, workers) in enumerate(counts):
        size = Size(1, workers)
        measured.look(told(float(at), samples, epoch=epoch, total_epochs=total, size=size, target=size))
    seen = scheduled_job(job(), measured, Allocation(1, 1), DEMANDS, 0.0)
    for value in (seen.samples_per_epoch, seen.total_epochs, seen.remaining_epochs):
        assert math.isfinite(value)
        assert value > 0
    found = progress_of(seen, measured, Allocation(1, 1), 60.0, finished=False)
    assert all(math.isfinite(value) and value >= 0 for value in (found.seconds, found.samples, found.epochs))
