"""Times that users are told of a job: right at any look, also in the midst of an interval, and never going back."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from local_world import LocalWorld
from test_job_views import record

from cluster_agent.backends.local.job_table import JobState, JobTable
from cluster_agent.backends.local.running_jobs import TrainingTimes
from policy_net.domain import SUSPENDED, Allocation, Decision


class Looks:
    """Looks at a job as time passes, and adds up for how long it was seen to have workers."""

    def __init__(self, world: LocalWorld, name: str) -> None:
        self.world, self.name = world, name
        self.seen: list[dict[str, Any]] = []
        self.held_seconds = 0.0
        self._polled_seconds = world.now
        world.wait = self._looking(world.wait)  # type: ignore[method-assign]
        world.restart()

    def _looking(self, wait: Callable[[float], bool]) -> Callable[[float], bool]:
        def wait_and_look(seconds: float) -> bool:
            held = self.world.jobs[self.name].held.workers
            stopped = wait(seconds)
            self.poll()
            if held:
                self.held_seconds += self.world.now - self._polled_seconds
            self._polled_seconds = self.world.now
            return stopped

        return wait_and_look

    def poll(self) -> dict[str, Any]:
        found = self.world.backend.table.get(self.name)
        assert found is not None
        self.seen.append(self.world.backend.facts(found))
        return self.seen[-1]


def decide(world: LocalWorld, size: Allocation) -> None:
    assert world.backend.observe() is not None
    world.backend.apply(Decision({"a": size}))


def test_they_are_right_while_a_job_runs_and_never_go_back_also_with_another_agent(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, slot_seconds=30.0)
    world.submit("a", epochs=50)
    looks = Looks(world, "a")
    for size in (Allocation(1, 1), Allocation(2, 1), SUSPENDED, Allocation(1, 1)):
        decide(world, size)
        assert looks.poll()["runSeconds"] == pytest.approx(looks.held_seconds, abs=2.0)
    world.restart()
    looks.poll()
    world.restart()
    decide(world, Allocation(1, 1))
    assert looks.held_seconds > 80
    assert looks.seen[-1]["runSeconds"] == pytest.approx(looks.held_seconds, abs=3.0)
    for before, after in zip(looks.seen, looks.seen[1:], strict=False):
        for key in ("waitedSeconds", "runSeconds", "ageSeconds"):
            assert after[key] >= before[key] - 1e-6, key
    for facts in looks.seen:
        assert facts["waitedSeconds"] + facts["runSeconds"] == pytest.approx(facts["ageSeconds"])
    middle = [facts["runSeconds"] for facts in looks.seen if 0 < facts["runSeconds"] < 25]
    assert len(middle) > 10, "it moves within an interval, not only at its end"


def test_they_stand_still_once_it_has_ended(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    world.submit("a", epochs=2)
    looks = Looks(world, "a")
    while not world.backend.finished:
        if world.backend.observe() is None:
            break
        world.backend.apply(Decision({"a": Allocation(1, 1)}))
    ended = looks.poll()
    assert ended["state"] == "done"
    assert ended["runSeconds"] == pytest.approx(looks.held_seconds, abs=2.0)
    world.now += 500.0
    assert looks.poll() == ended
    world.restart()
    assert looks.poll() == ended


def test_what_a_full_disk_does_not_take_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    table = JobTable(tmp_path)
    table.put(record(1.0, state=JobState.RUNNING))
    times = TrainingTimes(table, lambda: now[0])

    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(table, "_write", full)
        times.note("job", trains=True)
        now[0] = 110.0
        job = table.get("job")
        assert job is not None
        assert job.training_since_unix_seconds == 0.0
        assert times.seconds(job, 110.0) == 10.0
    times.note("job", trains=True)
    job = table.get("job")
    assert job is not None
    assert job.training_since_unix_seconds == 100.0
    now[0] = 130.0
    times.note("job", trains=False)
    now[0] = 200.0
    times.note("gone", trains=True)
    job = JobTable(tmp_path).get("job")
    assert job is not None
    assert (job.trained_seconds, job.training_since_unix_seconds) == (30.0, 0.0)


def test_what_ended_while_nobody_looked_ended_with_its_last_sign_of_life(tmp_path: Path) -> None:
    now = [1000.0]
    table = JobTable(tmp_path)
    table.put(record(1.0, state=JobState.RUNNING))
    TrainingTimes(table, lambda: now[0]).note("job", trains=True)
    now[0] = 200_000.0  # the machine was down
    for sign, trained in ((1600.0, 600.0), (0.0, 0.0), (1e9, 199_000.0)):
        ended = JobTable(tmp_path)
        times = TrainingTimes(ended, lambda: now[0])
        before = ended.get("job")
        assert before is not None
        times.note("job", trains=False, last_sign=lambda sign=sign: sign)
        found = ended.get("job")
        assert found is not None
        assert (found.trained_seconds, found.training_since_unix_seconds) == (trained, 0.0)
        ended.put(before)


def test_an_end_that_was_seen_is_now_whatever_was_written_last(tmp_path: Path) -> None:
    now = [1000.0]
    table = JobTable(tmp_path)
    table.put(record(1.0, state=JobState.RUNNING))
    times = TrainingTimes(table, lambda: now[0])
    times.note("job", trains=True)
    now[0] = 1050.0
    times.note("job", trains=False, last_sign=lambda: 1001.0)
    found = table.get("job")
    assert found is not None
    assert found.trained_seconds == 50.0


def test_a_record_of_before_goes_on_with_what_it_has(tmp_path: Path) -> None:
    table = JobTable(tmp_path)
    table.put(record(1.0, state=JobState.RUNNING, run_seconds=36_000.0))
    times = TrainingTimes(table, lambda: 100.0)
    times.note("job", trains=True)
    found = table.get("job")
    assert found is not None
    assert times.seconds(found, 110.0) == 36_010.0
