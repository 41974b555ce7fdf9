"""What jobs did, as a policy may see it: sound numbers, whatever a coordinator counts."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from training_objects import all_reduce_spec, job, job_object

from cluster_agent.backends.kubernetes.training.measured import (
    MeasuredJob,
    Usual,
    current_of,
    progress_of,
    scheduled_job,
    usual_of,
)
from cluster_agent.backends.kubernetes.training.step import CoordinatorReport
from cluster_agent.kubernetes.training.training_job import TrainingJob, training_job
from elastic_runtime.control.messages import JobStatus, Size
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import SUSPENDED, Allocation, Job, JobKind, Resources

DEMANDS = (Resources(1, 0), Resources(1, 0))


def job_report(at: float, samples: float, **more: Any) -> CoordinatorReport:
    stated = {"phase": JobPhase.RUNNING, "size": Size(1, 2), "target": Size(1, 2), "epoch": samples / 100, **more}
    return CoordinatorReport(JobStatus("digits", samples=samples, **stated), at)  # type: ignore[arg-type]


def test_a_size_is_measured_while_it_is_held() -> None:
    measured = MeasuredJob()
    for each in (
        job_report(0, 0),
        job_report(10, 100),
        job_report(20, 200),
        job_report(30, 220, phase=JobPhase.RESIZING, target=Size(1, 3)),
    ):
        measured.poll(each)
    seen = scheduled_job(job(), measured, Allocation(2, 1), DEMANDS, 0.0)
    found = progress_of(seen, measured, Allocation(2, 1), 40.0, finished=False)
    assert (found.seconds, found.samples, found.allocation) == (20.0, 200.0, Allocation(2, 1))
    assert measured.run_seconds == 20.0


def test_one_that_went_back_is_measured_anew() -> None:
    measured = MeasuredJob()
    for each in (job_report(0, 0), job_report(10, 500), job_report(20, 300), job_report(30, 400)):
        measured.poll(each)
    assert measured.period is not None
    assert (measured.period.seconds, measured.period.to_samples - measured.period.from_samples) == (10.0, 100.0)


def test_what_a_job_has_where_nobody_answers_or_is_believed() -> None:
    has = {"allocation": {"workers": 3, "ps": 1}, "startTime": "x"}
    assert current_of(job(status=has), None) == Allocation(3, 1)
    assert current_of(job(status=has), job_report(0, 0, size=Size(10**9, 1))) == Allocation(3, 1)
    assert current_of(job(status=has, suspend=True), None) == SUSPENDED
    assert current_of(job(), None) == SUSPENDED


def test_a_job_that_cannot_be_used_any_more_keeps_what_it_has() -> None:
    bad = job(status={"templateDigest": "other"})
    seen = scheduled_job(bad, MeasuredJob(), Allocation(2, 1), DEMANDS, 0.0)
    assert (seen.max_workers, seen.min_workers, seen.max_ps) == (2, 2, 1)


def in_steps(measured: MeasuredJob, usual: Usual = Usual(), steps: int = 400) -> Job:  # noqa: B008  # it is frozen
    return scheduled_job(job(work={"steps": steps}), measured, Allocation(2, 1), DEMANDS, 0.0, usual)


def test_steps_are_epochs_once_it_is_known_how_many_make_one() -> None:
    measured = MeasuredJob()
    assert not in_steps(measured).work_known, "nobody has said it"
    measured.poll(job_report(0, 50, step=5))
    seen = in_steps(measured)
    assert (seen.work_known, seen.total_epochs, seen.remaining_epochs) == (True, 40.0, 39.5)
    assert seen.samples_per_epoch == 100.0
    assert not in_steps(measured, steps=4).work_known, "it has done more than that"
    measured.poll(job_report(1, 60, step=6, total_epochs=12.0))
    assert in_steps(measured).total_epochs == 12.0, "the script knows better"


def test_before_it_trains_an_epoch_is_what_others_of_its_type_have_said() -> None:
    others = [MeasuredJob() for _ in range(4)]
    for number, each in enumerate(others[:3]):
        each.poll(job_report(0, 50 + number, step=5, epoch=0.5))
    usual = usual_of([*(("digits", each) for each in others), ("other", MeasuredJob())])
    assert usual == {"digits": Usual(102.0, 10.0)}
    seen = in_steps(MeasuredJob(), usual["digits"])
    assert (seen.work_known, seen.total_epochs, seen.remaining_epochs) == (True, 40.0, 40.0)
    assert seen.samples_per_epoch == 102.0


def ranks_job(**more: Any) -> TrainingJob:
    status = more.pop("status", {})
    return training_job({**job_object(status=status), "spec": all_reduce_spec(**more)})


def rank_told(at: float, samples: float, generation: int = 1, workers: int = 2) -> CoordinatorReport:
    return job_report(at, samples, size=Size(0, workers), target=Size(0, workers), generation=generation)


def test_a_policy_sees_an_all_reduce_job_as_one() -> None:
    measured = MeasuredJob()
    measured.poll(rank_told(0, 100))
    found = ranks_job()
    current = current_of(found, rank_told(0, 100))
    seen = scheduled_job(found, measured, current, (Resources(1, 0), Resources(0)), 0.0)
    assert (seen.kind, seen.current, seen.max_workers, seen.max_ps, seen.min_ps) == (
        JobKind.ALLREDUCE,
        Allocation(2),
        4,
        0,
        0,
    )
    assert current_of(found, job_report(0, 100, size=Size(0, 0))) == SUSPENDED


def test_without_checkpoints_a_policy_may_only_keep_the_size_that_is_there() -> None:
    found = ranks_job(checkpoints=None)
    demands = (Resources(1, 0), Resources(0))
    assert scheduled_job(found, MeasuredJob(), SUSPENDED, demands, 0.0).max_workers == 4
    seen = scheduled_job(found, MeasuredJob(), Allocation(2), demands, 0.0)
    assert (seen.min_workers, seen.max_workers) == (2, 2)


def test_the_pause_between_two_gangs_of_one_size_is_a_stall_and_no_time_in_which_it_trained() -> None:
    measured = MeasuredJob()
    measured.poll(rank_told(0, 0))
    measured.begin_interval()
    for each in (rank_told(10, 100), rank_told(50, 120, generation=2), rank_told(60, 220, generation=2)):
        measured.poll(each)
    demands = (Resources(1, 0), Resources(0))
    seen = scheduled_job(ranks_job(), measured, Allocation(2), demands, 0.0)
    found = progress_of(seen, measured, Allocation(2), 60.0, finished=False)
    assert (found.seconds, found.samples) == (10.0, 100.0)
    assert found.paused_seconds == 50.0
    assert measured.run_seconds == 20.0


figures = st.floats() | st.integers(-10, 10**20).map(float)


@given(st.lists(st.tuples(figures, figures, figures, st.integers(-1, 300)), max_size=6), figures)
def test_a_policy_never_sees_what_cannot_be(counts: list[tuple[float, float, float, int]], whole: float) -> None:
    measured = MeasuredJob()
    for at, (samples, epoch, total, workers) in enumerate(counts):
        size = Size(1, workers)
        measured.poll(job_report(float(at), samples, epoch=epoch, total_epochs=total, size=size, target=size))
    seen = scheduled_job(job(), measured, Allocation(1, 1), DEMANDS, 0.0)
    for value in (seen.samples_per_epoch, seen.total_epochs, seen.remaining_epochs):
        assert math.isfinite(value)
        assert value > 0
    found = progress_of(seen, measured, Allocation(1, 1), 60.0, finished=False)
    assert all(math.isfinite(value) and value >= 0 for value in (found.seconds, found.samples, found.epochs))


TYPES = {"a": "A100", "b": "T4"}


def test_where_workers_lay_is_known_while_they_lay_nowhere_else() -> None:
    measured = MeasuredJob()
    for at in (0, 10, 20):
        measured.poll(job_report(at, 10.0 * at), {"a": 1, "b": 1})
    assert measured.places(TYPES, TYPES) == (("A100", 1), ("T4", 1))
    assert measured.places(TYPES, {**TYPES, "b": "H100"}) == (), "a label has changed"
    assert measured.places({}, {}) == ()
    measured.poll(job_report(30, 300), {"a": 2})
    assert measured.places(TYPES, TYPES) == ()
    measured.begin_interval()
    assert measured.places(TYPES, TYPES) == (), "nothing was measured yet"
    measured.poll(job_report(40, 400), {"a": 2})
    assert measured.places(TYPES, TYPES) == (("A100", 2),)
    measured.poll(job_report(50, 500), {"a": 1})  # the other one's pod is gone, which its coordinator does not know yet
    assert measured.places(TYPES, TYPES) == ()


def test_where_nobody_looks_at_places_there_are_none() -> None:
    measured = MeasuredJob()
    measured.poll(job_report(0, 0))
    measured.poll(job_report(10, 100))
    assert measured.places(TYPES, TYPES) == ()
