"""What a job's status says of workers that stand at a step."""

from __future__ import annotations

from dataclasses import replace

from simulated_world import World


def test_a_worker_that_stands_at_its_step_has_no_speed_until_it_goes_on() -> None:
    job = World().training()
    worker = job.members["worker-0"]

    def at(seconds: float, steps: int) -> tuple[float, float]:
        """Speed and age of the step after a report so much later, so many steps further."""
        job.now += seconds
        worker.report = replace(worker.report, step=worker.report.step + steps, samples_per_second=100.0)
        job.take(job.machine.on_report(worker.report, job.now)[1])
        (task,) = [task for task in job.status().tasks if task.task == "worker-0"]
        assert task.samples_per_second == job.status().samples_per_second
        return task.samples_per_second, task.step_age_seconds

    assert at(1.0, 1) == (100.0, 0.0)
    assert at(5.0, 0) == (100.0, 5.0)
    assert at(6.0, 0) == (0.0, 11.0)
    assert at(1.0, 1) == (100.0, 0.0)
    worker.report = replace(worker.report, step_seconds=2.0)
    assert at(11.0, 0) == (100.0, 11.0)
