"""Decisions about this machine's jobs: carried out without giving anything twice, and measured as they were."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_world import SAMPLES_PER_WORKER_SECOND, LocalWorld

from cluster_agent.backends.local.job_table import JobState
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import SUSPENDED, Allocation, Decision, Trigger


def decide(world: LocalWorld, **sizes: tuple[int, int]) -> list[float]:
    """One decision, (workers, ps) by job; the samples that each observed job trained."""
    observed = world.backend.observe()
    assert observed is not None
    known = {job.job_id for job in observed[0].jobs}
    wanted = {name: Allocation(*size) for name, size in sizes.items() if name in known}
    return [entry.samples for entry in world.backend.apply(Decision(wanted))]


def test_a_job_starts_trains_and_ends_and_its_progress_is_what_was_counted(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    job = world.submit("a", epochs=5)
    trained = seconds = 0.0
    while not world.backend.finished:
        observed = world.backend.observe()
        if observed is None:
            break
        for entry in world.backend.apply(Decision({"a": Allocation(2, 1)})):
            trained, seconds = trained + entry.samples, seconds + entry.seconds
            if entry.seconds > 1.0 and not entry.finished:  # a script may do more after its last step
                assert entry.samples / entry.seconds == pytest.approx(2 * SAMPLES_PER_WORKER_SECOND, rel=0.1)
    assert job.starts == 1
    assert trained == pytest.approx(500.0, rel=0.05)
    record = world.backend.table.get("a")
    assert record is not None
    assert record.state is JobState.DONE
    assert record.run_seconds == pytest.approx(seconds)
    assert world.backend.status().avg_jct_seconds == pytest.approx(28.5, abs=1.5)


def test_what_one_job_gives_back_another_gets_only_afterwards(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, cpu_milli=4500)
    first, second = world.submit("a", epochs=50), world.submit("b", epochs=50)
    decide(world, a=(3, 3))
    assert first.held == Allocation(3, 3)
    decide(world, a=(1, 1), b=(2, 2))
    assert (first.held, second.held) == (Allocation(1, 1), Allocation(2, 2))
    assert world.most_taken.cpu_milli == 4500


def test_those_who_come_and_those_who_go_share_the_cores_of_their_job(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, cpu_milli=5000)
    job = world.submit("a", epochs=50)
    decide(world, a=(1, 8))
    decide(world, a=(3, 4))
    assert job.held == Allocation(3, 4)
    assert [(row.target.workers, row.target.servers) for row in job.requests] == [(3, 4)]
    assert world.most_taken.cpu_milli == 5000


def test_two_that_wait_for_what_the_other_has_go_by_way_of_less(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, cpu_milli=3000, gpus=5)
    sizes = {"worker": {"cpu": "100m", "gpu": 1, "max": 8}, "ps": {"cpu": "500m", "max": 8}}
    one, other = world.submit("a", epochs=50, **sizes), world.submit("b", epochs=50, **sizes)
    decide(world, a=(4, 1), b=(1, 4))
    assert (one.held, other.held) == (Allocation(4, 1), Allocation(1, 4))
    decide(world, a=(1, 4), b=(4, 1))
    assert (one.held, other.held) == (Allocation(1, 4), Allocation(4, 1))
    assert [(row.target.workers, row.target.servers) for row in one.requests] == [(1, 1), (1, 4)]
    assert [(row.target.workers, row.target.servers) for row in other.requests] == [(1, 1), (4, 1)]


def test_a_job_that_does_not_obey_keeps_what_it_has_and_the_others_go_on(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, cpu_milli=4500, resize_seconds=3.0)
    deaf, other = world.submit("deaf", epochs=50), world.submit("other", epochs=50)
    decide(world, deaf=(2, 2))
    deaf.deaf = True
    decide(world, deaf=(1, 1), other=(2, 2))
    assert deaf.held == Allocation(2, 2)
    assert other.held == SUSPENDED, "there is no room for it"
    decide(world, deaf=(2, 2), other=(1, 1))
    assert other.held == Allocation(1, 1)


def test_an_agent_that_begins_again_finds_its_jobs_training_and_does_not_start_them_twice(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    job, quick = world.submit("a", epochs=20), world.submit("quick", epochs=2)
    decide(world, a=(1, 1), quick=(1, 1))
    world.restart()
    world.wait(60.0)  # nobody looks, and both go on
    observed = world.backend.observe()
    assert observed is not None
    assert [entry.job_id for entry in observed[0].jobs] == ["a"]
    assert observed[0].jobs[0].current == Allocation(1, 1)
    record = world.backend.table.get("quick")
    assert record is not None
    assert record.state is JobState.DONE
    assert (job.starts, quick.starts) == (1, 1)


def test_a_launcher_that_dies_is_followed_by_another_and_nothing_counts_twice(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    job = world.submit("a", epochs=30)
    trained = sum(decide(world, a=(1, 1)))
    job.kill()
    while not world.backend.finished:
        if world.backend.observe() is None:
            break
        trained += sum(decide(world, a=(1, 1)))
    assert job.starts == 2
    assert trained <= 3000.0 + 10.0


def test_a_job_that_is_refused_what_a_policy_chose_begins_with_its_least_and_keeps_to_it(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    job = world.submit("a", epochs=5)
    job.fits = Allocation(1, 1)
    decide(world, a=(2, 2))
    observed = world.backend.observe()
    assert observed is not None
    (seen,) = observed[0].jobs
    assert (seen.max_workers, seen.max_ps, seen.requested) == (1, 1, Allocation(1, 1))
    while not world.backend.finished and world.backend.observe() is not None:
        decide(world, a=(1, 1))
    record = world.backend.table.get("a")
    assert record is not None
    assert (record.state, record.failure, job.starts) == (JobState.DONE, "", 2)
    assert record.too_large == "ask for less"


def test_a_job_that_is_refused_its_least_fails_with_the_line(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    job = world.submit("a", epochs=5)
    job.fits = SUSPENDED
    for _ in range(3):
        if world.backend.finished or world.backend.observe() is None:
            break
        decide(world, a=(2, 2) if not job.starts else (1, 1))
    record = world.backend.table.get("a")
    assert record is not None
    assert (record.state, job.starts) == (JobState.FAILED, 2)
    assert "ask for less" in record.failure


def test_a_job_whose_launcher_never_gets_anywhere_fails_with_a_line(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    world.submit("a").broken = True
    for _ in range(10):
        if world.backend.finished:
            break
        decide(world, a=(1, 1))
    record = world.backend.table.get("a")
    assert record is not None
    assert record.state is JobState.FAILED
    assert "see its logs" in record.failure


def test_arrivals_and_ends_are_told_and_decided_about_at_once(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, slot_seconds=100.0)
    world.submit("a", epochs=3)
    world.at.append((world.now + 10.0, lambda: world.submit("b", epochs=50)))
    triggers, times = [], []
    for _ in range(3):
        observed = world.backend.observe()
        assert observed is not None
        triggers.append(observed[1])
        times.append(world.now - 1000.0)
        world.backend.apply(Decision({job.job_id: Allocation(1, 1) for job in observed[0].jobs}))
    assert triggers == [Trigger.ARRIVAL, Trigger.ARRIVAL, Trigger.COMPLETION]
    assert times == pytest.approx([0.0, 10.3, 33.3], abs=1.0)


def test_a_held_job_gives_back_what_it_has_and_is_not_decided_about_until_it_is_resumed(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    job = world.submit("a", epochs=50)
    decide(world, a=(2, 2))
    world.backend.table.change("a", held=True)
    observed = world.backend.observe()
    assert observed is not None
    assert (observed[0].jobs[0].max_workers, observed[0].jobs[0].requested) == (0, SUSPENDED)
    world.backend.apply(Decision({}))
    assert job.held == SUSPENDED
    world.at.append((world.now + 30.0, lambda: world.backend.table.change("a", held=False)))
    decide(world, a=(1, 1))
    assert job.held == Allocation(1, 1)
    assert job.starts == 1


@pytest.mark.heavy
@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=3), min_size=2, max_size=12
    ),
    kills=st.lists(st.integers(0, 11), max_size=3),
    restarts=st.lists(st.integers(0, 11), max_size=2),
)
def test_whatever_is_decided_nothing_is_given_twice_and_every_job_ends(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[list[tuple[int, int]]],
    kills: list[int],
    restarts: list[int],
) -> None:
    """The world asserts at each moment that what processes take fits the machine."""
    world = LocalWorld(tmp_path_factory.mktemp("world"), cpu_milli=5000)
    jobs = [world.submit(name, epochs=4) for name in ("a", "b", "c")]
    for number in range(60):
        observed = world.backend.observe()
        if observed is None:
            break
        left = world.capacity
        wanted = {}
        row = sizes[number] if number < len(sizes) else [(1, 1)] * 3
        for job, (workers, servers) in zip(observed[0].jobs, row, strict=False):
            allocation = Allocation(workers, servers) if workers and servers else SUSPENDED
            takes = job.worker_demand * allocation.workers + job.ps_demand * allocation.ps
            if takes.fits_in(left):
                left, wanted[job.job_id] = left - takes, allocation
        world.backend.apply(Decision(wanted))
        if number in kills:
            jobs[number % 3].kill()
        if number in restarts:
            world.restart()
    assert [record.state for record in world.backend.table] == [JobState.DONE] * 3
    assert all(job.samples == job.total_samples for job in jobs)


def test_what_was_started_is_let_train_before_it_is_taken_back(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, cpu_milli=2000)
    first = world.submit("a", epochs=50)
    world.at.append((world.now + 0.5, lambda: world.submit("b", epochs=50)))
    decide(world, a=(1, 1))
    assert first.phase is JobPhase.STARTING
    decide(world, b=(1, 1))
    assert (first.phase, first.held) == (JobPhase.RUNNING, Allocation(1, 1))
    decide(world, b=(1, 1))
    assert first.phase is JobPhase.SUSPENDED, "it has trained, and may go now"
    second = world.jobs["b"]
    assert (first.starts, second.starts) == (1, 1)


def test_a_user_may_take_back_what_was_just_started(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, cpu_milli=2000)
    job = world.submit("a", epochs=50)
    world.at.append((world.now + 0.5, lambda: world.backend.table.change("a", held=True)))
    decide(world, a=(1, 1))
    assert job.phase is JobPhase.STARTING
    decide(world)
    assert job.target == SUSPENDED


def test_a_start_that_takes_too_long_may_be_taken_back(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, cpu_milli=2000, slot_seconds=1.5, start_seconds=1.0)
    first = world.submit("a", epochs=50)
    decide(world, a=(1, 1))
    assert first.phase is JobPhase.STARTING
    world.submit("b", epochs=50)
    decide(world, b=(1, 1))
    assert first.target == SUSPENDED


def test_a_job_whose_change_is_refused_while_it_starts_is_measured_once_it_trains(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, slot_seconds=10.0)
    job = world.submit("a", epochs=500)
    world.submit("late", epochs=500)
    observed = world.backend.observe()
    assert observed is not None
    world.at.append((world.now + 0.5, lambda: world.backend.table.change("late", held=True)))
    world.backend.apply(Decision({"a": Allocation(1, 1)}))  # a decision is due before the job has started
    assert job.held == SUSPENDED
    observed = world.backend.observe()
    assert observed is not None
    job.refuses = "it cannot be asked"
    (entry,) = world.backend.apply(Decision({"a": Allocation(2, 1)}))
    assert entry.allocation == Allocation(1, 1)
    assert entry.samples / entry.seconds == pytest.approx(SAMPLES_PER_WORKER_SECOND, rel=0.03)
    assert entry.seconds + entry.paused_seconds == pytest.approx(10.0, abs=0.5)


def test_a_job_whose_coordinator_is_being_started_is_asked_once_it_can_be(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, slot_seconds=10.0)
    job = world.submit("a", epochs=500)
    world.submit("late", epochs=500)
    assert world.backend.observe() is not None
    world.at.append((world.now + 0.5, lambda: world.backend.table.change("late", held=True)))
    world.backend.apply(Decision({"a": Allocation(1, 1)}))
    job.silent_until_seconds = world.now + 0.9
    assert world.backend.observe() is not None
    world.backend.apply(Decision({"a": Allocation(2, 1)}))
    assert job.held == Allocation(2, 1)
    assert [row.target.workers for row in job.requests] == [2]


def test_a_job_that_has_ended_and_was_not_noted_yet_is_not_started_again(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    job = world.submit("a", epochs=500)
    decide(world, a=(1, 1))
    poll, ended = world.backend.jobs.poll, []

    def look_and_end() -> None:
        """It ends right after the backend has looked, and before it measures."""
        poll()
        if not ended:
            ended.append(True)
            job.samples, job.phase, job.process, job.held = job.total_samples, JobPhase.FINISHED, None, SUSPENDED

    world.backend.jobs.poll = look_and_end  # type: ignore[method-assign]
    decide(world, a=(1, 1))
    assert world.backend.finished or world.backend.observe() is None
    assert job.starts == 1
    record = world.backend.table.get("a")
    assert record is not None
    assert record.state is JobState.DONE


@pytest.mark.parametrize(
    ("kind", "lies_per_second", "busy", "gpu", "believed"),
    [
        ("AllReduce", 0.0, 0.9, 0, True),
        ("AllReduce", 1e6, 0.9, 0, True),
        ("AllReduce", 1e9, 0.9, 0, False),  # beyond all machines
        ("PS", 1e9, None, 0, False),
        ("AllReduce", 1e6, 0.01, 0, False),  # its processes did next to nothing
        ("AllReduce", 1e6, 0.01, 1, True),  # a GPU did
        ("AllReduce", 1e6, 0.0, 1, False),
    ],
)
def test_a_speed_that_the_machine_cannot_have_had_is_not_learned_from(
    tmp_path: Path, kind: str, lies_per_second: float, busy: float | None, gpu: int, believed: bool
) -> None:
    world = LocalWorld(tmp_path, gpus=gpu)
    job = world.submit("a", epochs=50, communication=kind, worker={"cpu": 1, "gpu": gpu, "max": 1})
    job.busy = busy
    wanted = {"a": (1, 0 if kind == "AllReduce" else 1)}
    decide(world, **wanted)
    began, wait = world.now, world.backend.parts.wait

    def lying(seconds: float) -> bool:
        stopped = wait(seconds)
        job.lies_samples = lies_per_second * (world.now - began)
        return stopped

    object.__setattr__(world.backend.parts, "wait", lying)
    observed = world.backend.observe()
    assert observed is not None
    (entry,) = world.backend.apply(Decision({"a": Allocation(*wanted["a"])}))
    assert entry.seconds + entry.paused_seconds == pytest.approx(10.0, abs=1.0)
    record = world.backend.table.get("a")
    assert record is not None
    if believed:
        assert entry.samples / entry.seconds == pytest.approx(SAMPLES_PER_WORKER_SECOND + lies_per_second, rel=0.1)
        assert record.samples > 0
    else:
        assert (entry.seconds, entry.samples, entry.epochs) == (0.0, 0.0, 0.0)
        assert record.samples < 1e6
