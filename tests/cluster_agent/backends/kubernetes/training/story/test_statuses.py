"""A TrainingJob's status: conditions that `kubectl wait` knows, and no write where nothing more is to be said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from training_objects import all_reduce_spec, job, job_object

from cluster_agent.backends.kubernetes.training.ranks import GangStep
from cluster_agent.backends.kubernetes.training.step import CoordinatorReport, JobStanding, JobStep
from cluster_agent.backends.kubernetes.training.story.statuses import Granted, event_line, says_more, status_of
from cluster_agent.kubernetes.training.training_job import training_job
from elastic_runtime.control.messages import JobStatus, Size
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import Allocation

Json = dict[str, Any]
RUNS = JobStep(JobStanding.RUNNING)


def job_report(**more: Any) -> CoordinatorReport:
    return CoordinatorReport(
        JobStatus("digits", **{"phase": JobPhase.RUNNING, "size": Size(1, 2), "samples": 5, **more}), 0.0
    )


def conditions(status: Json) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}


def test_what_was_written_says_nothing_more_later_and_in_any_order() -> None:
    granted = Granted(Allocation(2, 1), "d1", "v1", "why", 7, 1000.0)
    written = status_of(job(), RUNS, job_report(), granted, 1000.0)
    assert says_more(job(), written)
    again = job(status=written)
    later = status_of(again, RUNS, job_report(samples=9, loss=0.5), replace(granted, unix_seconds=2000.0), 2000.0)
    assert not says_more(again, later), "how far it is, is no news"
    foreign = {"type": "Theirs", "status": "True", "lastTransitionTime": "x"}
    mixed = job(status={**written, "conditions": [*reversed(written["conditions"]), foreign]})
    status = status_of(mixed, RUNS, job_report(), granted, 3000.0)
    assert foreign in status["conditions"]
    assert not says_more(mixed, status)


def test_times_of_conditions_are_those_of_their_changes() -> None:
    written = status_of(job(), RUNS, job_report(), None, 1000.0)
    later = status_of(job(status=written), JobStep(JobStanding.SUSPENDED), None, None, 2000.0)
    times = {each["type"]: each["lastTransitionTime"] for each in later["conditions"]}
    assert times["Accepted"] != times["Suspended"]
    assert (conditions(written)["Running"], conditions(later)["Running"]) == ("True", "False")
    assert conditions(later)["Suspended"] == "True"


def test_an_end_that_nobody_saw_says_how_far_the_job_was() -> None:
    seen = status_of(job(), RUNS, job_report(epoch=19.9, total_epochs=90.0, samples=5), None, 1000.0)
    step = JobStep(JobStanding.COMPLETE, "90 epochs, 129330 samples", outcome="Complete")
    progress = status_of(job(status=seen), step, None, None, 2000.0)["progress"]
    assert (progress["epoch"], progress["samples"], progress["totalEpochs"]) == ("90.00", 129330, "90")
    strange = replace(step, line="many epochs, nan samples")
    assert "progress" not in status_of(job(status=seen), strange, None, None, 2000.0)


def test_what_is_recommended_stands_there_until_the_size_is_set() -> None:
    written = status_of(job(updateMode="Off"), RUNS, job_report(), None, 1000.0, Allocation(3, 2))
    assert (written["recommendation"]["workers"], written["recommendation"]["ps"]) == (3, 2)
    off = job(updateMode="Off", status=written)
    assert not says_more(off, status_of(off, RUNS, job_report(), None, 2000.0, Allocation(3, 2)))
    assert says_more(off, status_of(off, RUNS, job_report(), None, 2000.0, Allocation(0, 0)))
    assert status_of(job(status=written), RUNS, job_report(), None, 2000.0)["recommendation"] is None


@pytest.mark.parametrize("outcome", ["Complete", "Failed"])
def test_a_jobs_end_stays_said(outcome: str) -> None:
    step = JobStep(JobStanding(outcome), "three epochs", outcome=outcome)
    written = status_of(job(), step, None, None, 1000.0)
    over = job(status=written)
    assert over.outcome == outcome
    later = status_of(over, JobStep(JobStanding(outcome), "three epochs"), None, None, 2000.0)
    assert not says_more(over, later)
    assert "completionTime" not in later, "it is there already"


@pytest.mark.parametrize("falsehood", [{"samples": 10**30}, {"epoch": float("nan")}, {"total_epochs": -1.0}], ids=str)
def test_what_is_not_believed_is_not_written(falsehood: Json) -> None:
    status = status_of(job(), RUNS, job_report(**falsehood), None, 1000.0)
    assert "progress" not in status
    assert (status["workers"], status["ps"]) == (0, 0)


def test_where_a_job_keeps_what_it_has_trained() -> None:
    assert conditions(status_of(job(), RUNS, None, None, 0.0))["Durable"] == "True"
    assert conditions(status_of(job(coordinator={}), RUNS, None, None, 0.0))["Durable"] == "False"
    stored = status_of(job(checkpoints={"store": "s3://b/c"}), RUNS, None, None, 0.0)
    assert conditions(stored)["Durable"] == "True"
    assert "checkpoints are in s3://b/c" in str(stored["conditions"])


def test_a_line_is_one_line_of_a_bearable_length() -> None:
    status = status_of(job(), JobStep(JobStanding.FAILED, "a\nb" * 5000), None, None, 0.0)
    assert "\n" not in status["message"]
    assert len(status["message"]) <= 1000


def test_an_all_reduce_job_says_its_ranks_also_where_its_script_says_nothing_and_whether_it_can_be_resized() -> None:
    def written(step: GangStep, **more: Any) -> Json:
        found = training_job({**job_object(), "spec": all_reduce_spec(**more)})
        return status_of(found, step, None, None, 1000.0)

    runs = written(GangStep(JobStanding.RUNNING, gang=1, world=3))
    assert (runs["workers"], runs["ps"]) == (3, 0)
    assert (conditions(runs)["Resizable"], conditions(runs)["Durable"], conditions(runs)["Running"]) == ("True",) * 3
    pauses = written(GangStep(JobStanding.RESIZING, gang=1, world=3), checkpoints=None)
    assert (pauses["workers"], conditions(pauses)["Running"]) == (0, "False")
    (resizable,) = [each for each in pauses["conditions"] if each["type"] == "Resizable"]
    assert (resizable["status"], resizable["reason"]) == ("False", "NoCheckpointVolume")
    assert "Resizable" not in conditions(status_of(job(), RUNS, job_report(), None, 1000.0))


@pytest.mark.parametrize(
    ("step", "found", "line"),
    [
        (RUNS, job_report(size=Size(1, 2)), "trains with 2 workers and 1 PS"),
        (RUNS, job_report(size=Size(0, 1)), "trains with 1 worker"),
        (JobStep(JobStanding.RESIZING), job_report(target=Size(2, 1)), "from 2 workers and 1 PS to 1 worker and 2 PSs"),
        (JobStep(JobStanding.RESIZING), job_report(target=Size(1, 2)), "trains with 2 workers and 1 PS"),
        (
            JobStep(JobStanding.RESIZING, "waits for room to grow"),
            job_report(target=Size(2, 1)),
            "waits for room to grow",
        ),
        (RUNS, None, "running"),
        (RUNS, job_report(epoch=float("nan")), "running"),
        (JobStep(JobStanding.SUSPENDED), job_report(), "suspended"),
    ],
)
def test_events_say_sizes_where_nothing_else_is_said(step: JobStep, found: CoordinatorReport | None, line: str) -> None:
    assert event_line(step, found) == line


def test_a_jobs_start_and_end_are_said_once() -> None:
    gang = JobStep(JobStanding.STARTING, begin=Allocation(2, 1), create=("coordinator",))
    began = status_of(job(), gang, None, None, 1000.0)
    assert began["startTime"] == "1970-01-01T00:16:40Z"
    again = status_of(job(status=began), gang, None, None, 2000.0)
    assert again.keys().isdisjoint({"startTime", "templateDigest"}), "a gang that takes the place of the first one"
    ends = JobStep(JobStanding.COMPLETE, "three epochs", outcome="Complete")
    ended = status_of(job(status=began), ends, None, None, 3000.0)
    assert ended["completionTime"] == "1970-01-01T00:50:00Z"
    assert "completionTime" not in status_of(job(status={**began, **ended}), ends, None, None, 4000.0)
