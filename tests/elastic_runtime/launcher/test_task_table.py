"""Which failures of scripts a launcher takes for failures after training."""

from dataclasses import replace

from elastic_runtime.launcher.task_table import LateFailures, TaskEnd
from elastic_runtime.protocol.plan import JobPhase, Plan, View

RUNNING = View(7, 1, JobPhase.RUNNING, 0, "", Plan((), ()))
FINISHED = replace(RUNNING, number=8, phase=JobPhase.FINISHED)
END = TaskEnd("worker-0", 1, "OSError: no room")


def test_a_failure_counts_when_the_job_is_done_or_is_seen_to_be_next() -> None:
    for seen in (RUNNING, FINISHED):
        late = LateFailures()
        late.on_failure(END, seen)
        late.on_failure(TaskEnd("worker-1", 1, ""), seen)
        late.on_view(seen)
        late.on_view(FINISHED)
        assert late.first is END


def test_a_failure_that_the_job_has_made_good_does_not_count() -> None:
    late = LateFailures()
    late.on_failure(END, RUNNING)
    late.on_view(replace(RUNNING, number=8))
    late.on_view(replace(FINISHED, number=9))
    assert late.first is None


def test_of_a_job_that_failed_nothing_is_late() -> None:
    late = LateFailures()
    late.on_failure(END, replace(RUNNING, phase=JobPhase.FAILED))
    assert late.first is None
