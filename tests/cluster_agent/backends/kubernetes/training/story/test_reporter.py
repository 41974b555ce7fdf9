"""How often a job's status says how far it is: every ten seconds, and of very many jobs less often."""

from __future__ import annotations

from typing import Any

import pytest
from training_objects import job_object

from cluster_agent.backends.kubernetes.training.step import CoordinatorReport, JobStanding, JobStep
from cluster_agent.backends.kubernetes.training.story.reporter import Reporter
from cluster_agent.backends.kubernetes.training.task_pods import task_pod_facts
from cluster_agent.kubernetes.cache import Cache
from cluster_agent.kubernetes.errors import Conflict
from cluster_agent.kubernetes.training.training_job import TrainingJob, training_job
from elastic_runtime.control.messages import JobStatus, Size
from elastic_runtime.protocol.plan import JobPhase

Json = dict[str, Any]


class World:
    """One job on a server, its agent's caches, and a clock."""

    def __init__(self) -> None:
        self.now, self.found, self.writes = 1000.0, job_object(), 0
        clock, nothing = (lambda: self.now), (lambda: None)
        self.jobs: Cache[TrainingJob] = Cache(training_job, clock, nothing)
        self.jobs.put(self.found)
        pods = Cache(task_pod_facts, clock, nothing)
        self.teller = Reporter(self, self.jobs, pods, self, nothing, clock, clock)  # type: ignore[arg-type]

    @property
    def job(self) -> TrainingJob:
        entry = self.jobs.get(("team", "digits"))
        assert entry is not None
        return entry.kept

    def patch(self, path: str, body: Json, *_: object) -> Json:
        assert path.endswith("/status")
        metadata = self.found["metadata"]
        if body["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            raise Conflict("it has changed", 409)
        self.writes += 1
        version = str(int(metadata["resourceVersion"]) + 1)
        status = {**self.found.get("status", {}), **body["status"]}
        self.found = {**self.found, "metadata": {**metadata, "resourceVersion": version}, "status": status}
        return self.found

    def say(self, samples: int) -> None:
        status = JobStatus("digits", JobPhase.RUNNING, size=Size(1, 2), target=Size(1, 2), samples=samples)
        self.teller.say(self.job, JobStep(JobStanding.RUNNING), CoordinatorReport(status, self.now))


@pytest.mark.parametrize(("jobs", "least", "most"), [(1, 5, 6), (150, 1, 2), (2000, 0, 0)])
def test_progress_is_written_less_often_where_there_are_many(jobs: int, least: int, most: int) -> None:
    world = World()
    world.teller.forget({world.job.uid, *(f"uid-{number}" for number in range(jobs - 1))})
    world.say(100)
    before = world.writes
    for second in range(60):
        world.now += 1.0
        world.say(1000 + second)
    assert least <= world.writes - before <= most


def test_a_status_that_was_written_by_another_since_is_left_as_it_is() -> None:
    world = World()
    world.say(100)
    said = world.found["status"]
    world.found = {**world.found, "metadata": {**world.found["metadata"], "resourceVersion": "50"}}
    assert not world.teller.write(world.job, {"phase": "Starting"})
    assert world.found["status"] == said
    world.jobs.put(world.found)
    assert world.teller.write(world.job, {"phase": "Starting"})
