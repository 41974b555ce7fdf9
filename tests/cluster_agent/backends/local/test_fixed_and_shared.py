"""Jobs of a fixed size beside elastic ones, and GPUs and cores that are never given twice; on a simulated machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from local_world import LocalWorld

from cluster_agent.backends.local.job_processes import LocalMeasurement
from cluster_agent.backends.local.job_table import JobState
from cluster_agent.backends.local.machine_shares import CoreMap, GpuLedger, MachineShares, gpu_file
from cluster_agent.backends.local.running_jobs import RunningJobs
from elastic_runtime.launcher.gpu_seats import GpuSeats, write_gpus
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import SUSPENDED, Allocation, Decision, Resources

FIXED = {"elastic": False, "communication": "AllReduce"}


def fixed(size: int = 1, cpu: int = 1) -> dict[str, object]:
    return {**FIXED, "worker": {"min": size, "max": size, "replicas": size, "cpu": cpu}}


def decide(world: LocalWorld, **sizes: tuple[int, int]) -> list[str]:
    """One decision, (workers, ps) by job; which jobs it was about."""
    observed = world.backend.observe()
    assert observed is not None
    known = [job.job_id for job in observed[0].jobs]
    world.backend.apply(Decision({name: Allocation(*size) for name, size in sizes.items() if name in known}))
    return known


def state_of(world: LocalWorld, name: str) -> JobState:
    record = world.backend.table.get(name)
    assert record is not None
    return record.state


def test_a_running_script_keeps_what_it_has_to_its_end_and_the_rest_is_shared(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, cpu_milli=5000)
    script, other = world.submit("script", epochs=6, **fixed(cpu=2)), world.submit("other", epochs=50)
    assert decide(world, script=(1, 0), other=(1, 1)) == ["script", "other"]
    observed = world.backend.observe()
    assert observed is not None
    assert observed[0].total == Resources(3000)
    assert decide(world, other=(2, 2)) == ["other"], "no policy is asked about it any more"
    assert (script.held, other.held) == (Allocation(1), Allocation(2, 2))
    while state_of(world, "script") is JobState.RUNNING:
        decide(world, other=(1, 1))
    assert state_of(world, "script") is JobState.DONE
    assert script.starts == 1
    observed = world.backend.observe()
    assert observed is not None
    assert observed[0].total == Resources(5000)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_script_that_starts_slowly_or_whose_agent_is_another_one_is_shown_as_it_is(
    tmp_path: Path, restarts: bool
) -> None:
    world = LocalWorld(tmp_path, slot_seconds=1.0, debounce_seconds=0.5)
    world.submit("script", epochs=50, **fixed())
    world.submit("other", epochs=50)
    for _ in range(2 * restarts + 1):  # a slot is over before the script runs
        decide(world, script=(1, 0), other=(1, 1))
    if restarts:
        world.restart()
    for _ in range(3):
        decide(world, other=(1, 1))
    record = world.backend.table.get("script")
    assert record is not None
    facts = world.backend.facts(record)
    assert (facts["state"], facts["workers"]) == ("running", 1)


class Unanswered:
    """Processes whose coordinator is not up again, and whose launcher wrote down something long ago."""

    launcher = 77
    log_folder = Path()

    def measure(self) -> LocalMeasurement:
        return LocalMeasurement(JobPhase.RUNNING, running=Allocation(1, 1), desired=Allocation(1, 1))


def test_what_a_job_was_given_last_is_its_own_until_its_coordinator_says_otherwise(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    world.submit("job")
    world.backend.table.change("job", state=JobState.RUNNING, granted_workers=2, granted_ps=1)
    shares = MachineShares(world.cores, world.ledger)
    jobs = RunningJobs(world.backend.table, lambda record: Unanswered(), lambda: world.now, shares)  # type: ignore[arg-type, return-value]
    assert jobs.measure("job").current == Allocation(2, 1)


def test_a_script_that_its_user_holds_is_ended_and_starts_over(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    script = world.submit("script", epochs=50, **fixed())
    decide(world, script=(1, 0))
    world.backend.table.change("script", held=True)
    decide(world)
    assert (script.process, state_of(world, "script")) == (None, JobState.SUSPENDED)
    world.backend.table.change("script", held=False)
    trained = script.samples
    decide(world, script=(1, 0))
    assert script.samples < trained + 10
    assert script.starts == 2


def test_a_script_that_is_requeued_gives_others_its_place_once_it_can_have_written_a_checkpoint(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, cpu_milli=3000)
    script = world.submit("script", epochs=50, requeue=True, checkpointSeconds=25.0, **fixed(cpu=2))
    other = world.submit("other", epochs=3)
    assert decide(world, script=(1, 0)) == ["script", "other"]
    for _ in range(2):
        assert decide(world, other=(1, 1)) == ["script", "other"], "every decision is about it"
        assert (script.held, other.held) == (Allocation(1), SUSPENDED), "it has not run for long enough"
    decide(world, other=(1, 1))
    decide(world, other=(1, 1))
    assert (script.process, state_of(world, "script")) == (None, JobState.SUSPENDED)
    assert other.held == Allocation(1, 1)
    record = world.backend.table.get("script")
    assert record is not None
    assert 25.0 <= record.trained_seconds < 40.0
    while state_of(world, "other") is not JobState.DONE:
        decide(world, other=(1, 1))
    decide(world, script=(1, 0))
    assert (script.starts, script.held) == (2, Allocation(1))
    world.backend.table.change("script", held=True)
    decide(world)
    assert state_of(world, "script") is JobState.SUSPENDED, "its user need not wait"


def test_a_script_that_is_requeued_teaches_no_speed_and_no_long_start(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    world.submit("script", epochs=50, requeue=True, **fixed())
    for number in range(3):
        observed = world.backend.observe()
        assert observed is not None
        (progress,) = world.backend.apply(Decision({"script": Allocation(1)}))
        assert (progress.seconds, progress.samples, progress.allocation) == (0.0, 0.0, Allocation(1))
        assert progress.paused_seconds < (3.0 if number == 0 else 0.2), "of ten"


@pytest.mark.parametrize(("requeue", "state"), [(True, JobState.RUNNING), (False, JobState.FAILED)])
def test_launchers_that_are_killed_after_a_while_do_not_fail_a_script_that_is_requeued(
    tmp_path: Path, requeue: bool, state: JobState
) -> None:
    world = LocalWorld(tmp_path, slot_seconds=1000.0)
    script = world.submit("script", epochs=5000, requeue=requeue, checkpointSeconds=15.0, **fixed())
    script.says_total = False
    for _ in range(4):
        script.samples = -1e9  # nobody counts what it trains
        world.at.append((world.now + 20.0, script.kill))
        if not world.backend.table.unended:
            break
        decide(world, script=(1, 0))
        script.samples = 0.0
    if requeue:
        decide(world, script=(1, 0))
    assert state_of(world, "script") is state


def test_while_scripts_have_all_nothing_is_decided_and_what_they_free_is_given_on(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, cpu_milli=2000, until_done=True)
    world.submit("script", epochs=6, **fixed(cpu=2))
    waits = world.submit("waits", epochs=1)
    decide(world, script=(1, 0))
    assert decide(world, waits=(1, 1)) == ["waits"], "decided once the script had ended"
    assert state_of(world, "script") is JobState.DONE
    assert waits.starts == 1


def test_a_script_whose_launcher_died_is_started_over_soon(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, slot_seconds=1000.0)
    script = world.submit("script", epochs=50, **fixed())
    world.at.append((world.now + 20.0, script.kill))
    decide(world, script=(1, 0))
    assert world.now < 1030.0, "that is decided about at once, and not after the slot"
    assert script.cleared == 1, "what it left behind is ended"
    decide(world, script=(1, 0))
    assert script.starts == 2


def test_an_all_reduce_job_is_resized_suspended_and_goes_on(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    job = world.submit("ring", epochs=30, communication="AllReduce")
    for size in (1, 3, 2, 0, 2):
        decide(world, ring=(size, 0))
        assert job.held == (Allocation(size) if size else SUSPENDED)
    while not world.backend.finished:
        decide(world, ring=(2, 0))
    assert state_of(world, "ring") is JobState.DONE
    assert job.samples == 3000.0


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=2, max_size=10),
    kills=st.lists(st.integers(0, 9), max_size=3),
    restarts=st.lists(st.integers(0, 9), max_size=3),
    lingers=st.lists(st.sampled_from([0.0, 0.3, 5.0]), min_size=3, max_size=3),
)
def test_whatever_is_decided_no_gpu_has_two_holders_and_all_are_free_in_the_end(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[list[int]],
    kills: list[int],
    restarts: list[int],
    lingers: list[float],
) -> None:
    """The world asserts at each moment that no two workers see the same GPU."""
    world = LocalWorld(tmp_path_factory.mktemp("world"), cpu_milli=20_000, gpus=4)
    worker = {"worker": {"gpu": 1}}
    jobs = [world.submit("ps", epochs=4, **worker), world.submit("ring", epochs=4, communication="AllReduce", **worker)]
    script = {"worker": {"min": 2, "max": 2, "replicas": 2, "gpu": 1}, **FIXED}
    jobs.append(world.submit("script", epochs=4, **script))
    for job, seconds in zip(jobs, lingers, strict=True):
        job.lingers_seconds = seconds
    for number in range(60):
        observed = world.backend.observe()
        if observed is None:
            break
        left, wanted = observed[0].total, {}
        row = sizes[number] if number < len(sizes) else [job.min_workers for job in observed[0].jobs]
        for job, workers in zip(observed[0].jobs, row, strict=False):
            size = Allocation(workers, int(job.kind.uses_ps)) if workers >= job.min_workers else SUSPENDED
            takes = job.worker_demand * size.workers + job.ps_demand * size.ps
            if takes.fits_in(left) and size.workers <= job.max_workers:
                left, wanted[job.job_id] = left - takes, size
        world.backend.apply(Decision(wanted))
        if number in kills:
            jobs[number % 3].kill()
        if number in restarts:
            world.restart()
    assert [record.state for record in world.backend.table] == [JobState.DONE] * 3
    assert world.ledger.granted == {}


@pytest.mark.parametrize("lingers_seconds", [0.0, 3.0])
@pytest.mark.parametrize("first", ["PS", "AllReduce"])
def test_a_gpu_goes_from_one_job_to_the_other_in_one_decision(
    tmp_path: Path, first: str, lingers_seconds: float
) -> None:
    """Once the process of the worker that had it has ended, which may be later than its coordinator has let it go."""
    world = LocalWorld(tmp_path, gpus=1)
    for name, kind in (("first", first), ("second", "AllReduce" if first == "PS" else "PS")):
        world.submit(name, epochs=500, communication=kind, worker={"gpu": 1}).lingers_seconds = lingers_seconds

    def size(name: str) -> tuple[int, int]:
        return (1, int(world.jobs[name].record.file.kind.uses_ps))

    decide(world, first=size("first"))
    for old, new in (("first", "second"), ("second", "first"), ("first", "second")):
        assert world.jobs[old].held.workers == 1
        decide(world, **{new: size(new)})
        assert world.jobs[new].held.workers == 1, "with the same decision"
        assert world.jobs[old].held == SUSPENDED


def test_a_gpu_that_a_worker_never_lets_go_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, gpus=1, slot_seconds=600.0, resize_seconds=20.0)
    world.submit("first", epochs=500, worker={"gpu": 1}).lingers_seconds = 1e9
    world.submit("second", epochs=500, worker={"gpu": 1})
    decide(world, first=(1, 1))
    with structlog.testing.capture_logs() as said:
        decide(world, second=(1, 1))
    [line] = [entry["line"] for entry in said if entry["event"] == "resize-refused"]
    assert line == "it needs 1 more GPU, and none is free after 20 s"
    assert world.jobs["second"].held == SUSPENDED
    world.jobs["first"].lingers_seconds = 0.0
    world.jobs["first"].leaving = dict.fromkeys(world.jobs["first"].leaving, 0.0)
    decide(world, second=(1, 1))
    assert world.jobs["second"].held.workers == 1, "the next decision finds it free"


def test_a_job_says_that_it_waits_for_what_another_still_uses_as_long_as_it_does(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, gpus=1, slot_seconds=60.0, resize_seconds=20.0)
    world.submit("first", epochs=500, worker={"gpu": 1}).lingers_seconds = 12.0
    world.submit("second", epochs=500, worker={"gpu": 1})
    notes: list[tuple[str, str]] = []

    def poll() -> None:
        record = world.backend.table.get("second")
        assert record is not None
        facts = world.backend.facts(record)
        notes.append((str(facts["state"]), str(facts["note"])))

    decide(world, first=(1, 1))
    world.at += [(world.now + seconds, poll) for seconds in (6.0, 55.0)]
    decide(world, second=(1, 1))
    assert notes == [("queued", "it needs 1 more GPU, and none is free"), ("running", "")]
    world.jobs["second"].lingers_seconds = 1e9
    decide(world, first=(1, 1))
    first = world.backend.table.get("first")
    assert first is not None
    assert world.backend.facts(first)["note"] == "it needs 1 more GPU, and none is free"
    decide(world)
    assert world.backend.facts(first)["note"] == "", "nobody has given it any since"


@pytest.mark.parametrize("launcher_dies", [False, True])
def test_an_agent_that_is_restarted_knows_what_a_suspended_job_still_uses(tmp_path: Path, launcher_dies: bool) -> None:
    world = LocalWorld(tmp_path, gpus=1)
    world.submit("first", epochs=500, worker={"gpu": 1}).lingers_seconds = 12.0
    world.submit("second", epochs=500, worker={"gpu": 1})
    decide(world, first=(1, 1))
    decide(world)
    assert state_of(world, "first") is JobState.SUSPENDED
    assert world.jobs["first"].seated, "its process is still there"
    world.restart()
    if launcher_dies:
        world.jobs["first"].kill()
    for _ in range(2):
        decide(world, second=(1, 1))  # the world fails the test if the GPU is given twice
    assert world.jobs["second"].held.workers == 1
    assert set(world.ledger.granted) == {"second"}


def test_the_ledger_takes_back_what_nobody_uses_and_is_found_again(tmp_path: Path) -> None:
    ledger = GpuLedger(tmp_path, ["a", "b", "c"])
    assert ledger.grow("x", 2) == ""
    seats = GpuSeats(gpu_file(tmp_path, "x"), 1)
    assert seats.take("worker-0") == ("a",)
    assert seats.take("worker-1") == ("b",)
    seats.give_back("worker-0")
    ledger.settle("x", 0)
    assert ledger.granted == {"x": ("b",)}, "its worker is still there"
    assert ledger.lacks("y", 3) == "it needs 3 more GPUs, and 2 are free"
    seats.give_back("worker-1")
    assert ledger.lacks("y", 3) == ""
    assert ledger.granted == {}
    assert ledger.grow("x", 1) == ""
    assert seats.take("worker-1") == ("a",)
    again = GpuLedger(tmp_path, ["a", "b", "c"], ["x"])
    assert again.grow("y", 3) == "it needs 3 more GPUs, and 2 are free"
    assert again.grow("y", 2) == ""
    assert again.granted == {"x": ("a",), "y": ("b", "c")}
    again.release("x")
    again.release("y")
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_is_about_to_start_keeps_its_gpu_when_the_agent_is_restarted(tmp_path: Path) -> None:
    write_gpus(gpu_file(tmp_path, "first"), ["a"])  # it was to have two, and its coordinator would not
    write_gpus(gpu_file(tmp_path, "second"), ["b"])  # its launcher has not come to read that yet
    again = GpuLedger(tmp_path, ["a", "b"], ["first", "second"])
    assert again.grow("first", 2) == "it needs 1 more GPU, and none is free"
    assert again.grow("second", 1) == ""
    assert again.granted == {"first": ("a",), "second": ("b",)}


def test_who_waits_for_a_gpu_writes_nothing_down_again_and_says_once_that_it_cannot(tmp_path: Path) -> None:
    written, fault = [], []

    class Watched(GpuLedger):
        def _put(self, name: str, gpus: list[str]) -> None:
            written.append((name, gpus))
            if fault:
                raise fault[0]
            super()._put(name, gpus)

    ledger = Watched(tmp_path, ["a", "b"])
    ledger.grow("x", 2)
    seats = GpuSeats(gpu_file(tmp_path, "x"), 1)
    for worker in ("worker-0", "worker-1"):
        seats.take(worker)
    ledger.settle("x", 1)
    assert [ledger.lacks("y", 1) != "" for _ in range(3)] == [True] * 3
    assert written == [("x", ["a", "b"])]
    seats.give_back("worker-1")
    fault.append(OSError("full"))
    with structlog.testing.capture_logs() as logs:
        assert [ledger.lacks("y", 1) != "" for _ in range(3)] == [True] * 3
    assert [line["event"] for line in logs] == ["gpus-not-taken-back"]
    fault.clear()
    assert ledger.lacks("y", 1) == ""
    assert ledger.granted == {"x": ("a",)}


def test_jobs_get_the_least_crowded_cores_and_keep_those_that_they_have() -> None:
    cores = CoreMap([0, 1, 2, 3], lambda name: ())
    cores.grant("a", 1500)
    cores.grant("b", 2000)
    assert (cores.cores_of("a"), cores.cores_of("b")) == ([0, 1], [2, 3])
    cores.grant("c", 500)
    assert cores.cores_of("c")[0] in (0, 1)
    cores.grant("b", 1000)
    assert cores.cores_of("b")[0] in (2, 3)
    cores.grant("a", 100_000)
    assert cores.cores_of("a") == [0, 1, 2, 3]
    cores.release("a")
    assert cores.cores_of("a") == [0, 1, 2, 3], "nobody keeps it to any"


def shown_state(world: LocalWorld, name: str) -> str:
    record = world.backend.table.get(name)
    assert record is not None
    return str(world.backend.facts(record)["state"])


def test_a_script_that_begins_while_others_are_decided_about_is_shown_as_running(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    world.submit("script", epochs=500, **fixed())
    # Another comes before the script's process is there: no later decision is about the script.
    world.at.append((world.now + 1.0, lambda: world.submit("other", epochs=500)))
    decide(world, script=(1, 0))
    assert shown_state(world, "script") == "starting"
    assert decide(world, other=(1, 1)) == ["other"]
    assert shown_state(world, "script") == "running"


def test_a_script_that_runs_is_shown_as_running_by_the_next_agent_too(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    world.submit("script", epochs=500, **fixed())
    world.submit("other", epochs=500)
    decide(world, script=(1, 0), other=(1, 1))
    world.restart()
    decide(world, other=(1, 1))
    assert shown_state(world, "script") == "running"


def test_what_a_user_looks_at_is_measured_again_between_two_decisions(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, slot_seconds=100.0)
    world.submit("job", epochs=500)
    decide(world, job=(1, 1))
    seen: list[float] = []

    def poll() -> None:
        record = world.backend.table.get("job")
        assert record is not None
        seen.append(float(str(world.backend.facts(record)["samples"])))

    began = world.now
    world.at += [(began + after, poll) for after in (20.0, 25.0, 45.0, 50.0)]
    decide(world, job=(1, 1))
    assert seen[1] > seen[0], "measured since it was looked at first"
    assert seen[2] - seen[0] < 400, "nobody had looked for 20 seconds"
    assert seen[3] > seen[2]


def test_every_end_is_told_with_one_interval_also_while_a_resize_hangs(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, cpu_milli=40_000, slot_seconds=3.7, debounce_seconds=3.7, resize_seconds=1000.0)
    names = [f"job-{number}" for number in range(20)]
    for number, name in enumerate(names):
        world.submit(name, epochs=2.0 + 0.13 * number)
    hangs = world.submit("hangs", epochs=10_000.0)
    decide(world, hangs=(1, 1), **dict.fromkeys(names, (1, 1)))
    hangs.deaf = True
    reported: list[str] = []
    while len(reported) < len(names) and world.now < 3000.0:
        observed = world.backend.observe()
        assert observed is not None
        sizes = {job.job_id: Allocation(1, 1) for job in observed[0].jobs} | {"hangs": Allocation(2, 2)}
        reported += [entry.job_id for entry in world.backend.apply(Decision(sizes)) if entry.finished]
    assert sorted(reported) == sorted(names)
