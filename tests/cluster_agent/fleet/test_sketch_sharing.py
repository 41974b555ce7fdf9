"""What a cluster tells of its work: only where it is wanted, rounded, and taken back when it no longer is."""

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_fakes import Clock, FakeLearner
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_agent.fleet.sharing import EVERY_SECONDS, REPORTED_FILE, SketchSharing
from cluster_agent.fleet.sketch_making import LEAST_FOR_DAY, LEAST_JOBS, on_grid, sketch_of
from policy_net.domain import Allocation, JobKind, Progress, Resources
from policy_net.exchange.workload_sketch import KindSketch, WorkloadSketch
from policy_net.laboratory.workloads.decided import RecordedJobs
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob
from policy_net.throughput.parametric import OnlineFit

PS = KindSketch(JobKind.PS, 1.0, (60.0,) * 5, (1,) * 5, (1,) * 5)
SKETCH = WorkloadSketch(4, 2, 8, 40.0, (), (PS,))
PATIENCE_SECONDS = 90.0
DAY = 86_400.0


def prints(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", f"print({text!r})")


class World:
    def __init__(self, folder: Path, wanted: bool, command: tuple[str, ...]) -> None:
        self.learner, self.clock = FakeLearner(), Clock()
        self.sharing = SketchSharing(self.learner, folder, wanted, self.clock, command)
        self.registration = self.learner.register("", ())

    def beat(self) -> None:
        self.sharing.beat(self.registration)

    def beat_until(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not reached():
            assert time.monotonic() < deadline
            self.beat()
            time.sleep(0.01)


def test_it_is_told_once_a_day_where_it_is_wanted_and_taken_back_where_it_no_longer_is(tmp_path: Path) -> None:
    world = World(tmp_path, True, prints(json.dumps(SKETCH.to_json())))
    world.beat_until(lambda: len(world.learner.sketches) == 1)
    assert world.learner.sketches == [SKETCH]
    for _ in range(5):
        world.beat()
    assert len(world.learner.sketches) == 1
    world.clock.now += EVERY_SECONDS
    world.beat_until(lambda: len(world.learner.sketches) == 2)
    off = World(tmp_path, False, prints("nobody asked"))
    off.learner.away = 0
    off.beat()
    off.beat()
    assert off.learner.sketches == [None]
    assert not (tmp_path / REPORTED_FILE).exists()


def test_where_it_was_never_wanted_nothing_is_said(tmp_path: Path) -> None:
    world = World(tmp_path, False, prints("null"))
    world.beat()
    assert world.learner.sketches == []
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_sketch_is_not_told_and_one_that_was_refused_is_tried_again(tmp_path: Path) -> None:
    for index, said in enumerate(("null", "{}", "else", json.dumps({**SKETCH.to_json(), "nodes": 0}))):
        world = World(tmp_path, True, prints(said))
        world.beat()
        world.beat_until(lambda world=world: world.sharing.process is None)
        assert world.learner.sketches == [], index
        world.sharing.close()
    world = World(tmp_path, True, prints(json.dumps(SKETCH.to_json())))
    world.learner.refuse = 1
    world.beat_until(lambda: world.learner.refuse == 0)
    assert world.learner.sketches == []
    world.clock.now += 600.0
    world.beat_until(lambda: world.learner.sketches == [SKETCH])


def test_a_process_that_hangs_is_ended(tmp_path: Path) -> None:
    world = World(tmp_path, True, (sys.executable, "-c", "import time; time.sleep(600)"))
    world.beat()
    process = world.sharing.process
    assert process is not None
    world.clock.now += 1801.0
    world.beat()
    assert process.poll() is not None
    assert world.sharing.process is None


def recorded(count: int, gpus: int = 2, **changes: Any) -> RecordedJobs:
    speeds = OnlineFit()
    speeds.observe([Progress("seen", "vgg-16", Allocation(2, 1), 100.0, 1000.0, 10.0, 100.0)])
    jobs = tuple(
        WorkloadJob(
            job_id=f"secret-{number}",
            submit_time_seconds=600.0 * number,
            total_epochs=10.0 + number % 7,
            samples_per_epoch=100.0,
            worker_demand=Resources(2000, 1),
            ps_demand=Resources(2000),
            **{"job_type": "vgg-16", "requested": Allocation(2, 1), **changes},
        )
        for number in range(count)
    )
    capacities = {(Resources(8000, gpus),) * 4: 100.0}
    return RecordedJobs(Workload("log", jobs), 0.0, {}, capacities, speeds, 1200.0, 600.0 * count, 0)


def test_a_log_becomes_a_few_rounded_numbers_without_a_name() -> None:
    sketch = sketch_of(recorded(200))
    assert sketch is not None
    assert (sketch.nodes, sketch.gpus_per_node, sketch.cpus_per_node) == (4, 2, 8)
    assert abs(math.log2(sketch.jobs_a_day / 144.0)) <= 0.13
    assert len(sketch.day_shares) == 8
    (kind,) = sketch.kinds
    assert (kind.kind, kind.share, set(kind.workers), set(kind.ps)) == (JobKind.PS, 1.0, {2}, {1})
    assert all(abs(math.log2(value) * 2 - round(math.log2(value) * 2)) < 0.02 for value in kind.run_seconds)
    said = json.dumps(sketch.to_json())
    assert "secret" not in said
    assert "vgg" not in said


def test_few_jobs_and_machines_without_gpus_say_nothing() -> None:
    assert sketch_of(recorded(LEAST_JOBS - 1)) is None
    assert sketch_of(recorded(LEAST_JOBS, gpus=0)) is None
    few = sketch_of(recorded(LEAST_FOR_DAY - 1))
    assert few is not None
    assert few.day_shares == ()


@settings(deadline=None)
@given(st.integers(LEAST_JOBS, 400))
def test_one_job_more_or_less_is_a_step_of_the_grid_at_most(count: int) -> None:
    sketch, more = sketch_of(recorded(count)), sketch_of(recorded(count + 1))
    assert sketch is not None
    assert more is not None
    for one, other in zip(sketch.kinds[0].run_seconds, more.kinds[0].run_seconds, strict=True):
        assert abs(math.log2(one / other)) <= 0.52
    assert on_grid(on_grid(float(count), 4), 4) == on_grid(float(count), 4)


def test_the_process_says_in_a_line_what_is_wrong_with_a_log(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cluster_agent.fleet.sketch_making", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.strip().splitlines()) == 1


def test_of_jobs_that_asked_for_more_than_older_learners_take_it_says_the_usual_number() -> None:
    ring = {"kind": JobKind.ALLREDUCE, "max_ps": 0, "min_ps": 0, "max_workers": 40, "requested": Allocation(40, 0)}
    jobs = recorded(200, job_type="ring", **ring)
    assert isinstance(jobs.speeds, OnlineFit)
    jobs.speeds.observe([Progress("seen", "ring", Allocation(40, 0), 100.0, 1000.0, 10.0, 100.0)])
    sketch = sketch_of(jobs)
    assert sketch is not None
    assert [(kind.kind, set(kind.workers)) for kind in sketch.kinds] == [(JobKind.ALLREDUCE, {16})]
