"""Whatever dies in whatever state: no job is lost or run twice, nothing is given twice, and all end; enumerated.

The agent is killed before and after everything that it does to disk or to processes. Launchers, coordinators and tasks
are killed in the middle of every change of a scenario that starts, resizes, suspends, resumes and cancels jobs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
from local_world import AgentKilled, LocalWorld, SimulatedJob

from cluster_agent.backends.local.job_table import JobState
from policy_net.domain import SUSPENDED, Allocation, ClusterState, Decision, Resources

FIXED = {"elastic": False, "communication": "AllReduce"}
GPU = {"gpu": 1, "cpu": 1}
SIZES = [
    {"ps": (2, 1), "ring": (1, 0), "script": (1, 0)},
    {"ps": (1, 2), "ring": (2, 0)},
    {"ps": (0, 0), "ring": (3, 0)},
    {"ps": (2, 1), "ring": (1, 0)},
]
"""(workers, servers) that each decision wants; then the least that each job trains with."""


class Scenario:
    """One machine with a job of each kind and one that is cancelled, and a user who holds one and lets it go."""

    def __init__(self, folder: Path) -> None:
        self.world = LocalWorld(folder, cpu_milli=6000, gpus=4, slot_seconds=6.0)
        self.world.submit("ps", epochs=2, worker=GPU)
        self.world.submit("ring", epochs=2, communication="AllReduce", worker=GPU)
        self.world.submit("script", epochs=1, **FIXED, worker={"min": 1, "max": 1, "replicas": 1, **GPU})
        self.world.submit("doomed", epochs=1000, **FIXED)
        at = self.world.now
        self.world.longest_seconds = at + 500.0
        self.world.at += [
            (at + 3.0, lambda: self.change("ring", held=True)),
            (at + 9.0, lambda: self.change("ring", held=False)),
            (at + 14.0, lambda: self.change("doomed", cancelling=True)),
        ]
        self.decisions = 0

    def change(self, name: str, **values: object) -> None:
        """What a user asks for, and asks for again where no agent has answered."""
        if self.world.backend.table.get(name).state.ended:  # type: ignore[union-attr]
            return
        try:
            self.world.backend.table.change(name, **values)
        except AgentKilled:
            self.world.at.append((self.world.now + 1.0, lambda: self.change(name, **values)))
            raise

    def run(self) -> None:
        """To the end, with another agent whenever one was killed."""
        for _ in range(60):
            try:
                observed = self.world.backend.observe()
                if observed is None:
                    return
                self.world.backend.apply(self.decide(observed[0]))
            except AgentKilled:
                self.world.kill_agent_at = None
                self.world.restart()
        raise AssertionError(f"no end in sight: {[record.state for record in self.world.backend.table]}")

    def decide(self, state: ClusterState) -> Decision:
        sizes = SIZES[self.decisions] if self.decisions < len(SIZES) else {}
        self.decisions += 1
        left, wanted = state.total, {}
        for job in state.jobs:
            size = Allocation(*sizes.get(job.job_id, (job.min_workers, job.min_ps)))
            size = size if size.workers <= job.max_workers else SUSPENDED
            takes = job.worker_demand * size.workers + job.ps_demand * size.ps
            if takes.fits_in(left):
                left, wanted[job.job_id] = left - takes, size
        return Decision(wanted)

    def check(self) -> None:
        """Everything that has to be true in the end, whatever happened."""
        world = self.world
        states = {record.name: record.state for record in world.backend.table}
        done = dict.fromkeys(("ps", "ring", "script"), JobState.DONE)
        assert states == {**done, "doomed": JobState.CANCELLED}
        assert world.ends == dict.fromkeys(states, 1), "each ended once"
        for name in done:
            assert world.jobs[name].samples == world.jobs[name].total_samples
        for job in world.jobs.values():
            assert (job.process, job.taken) == (None, Resources(0))
        assert world.ledger.granted == {}
        assert sorted(path.name for path in (world.folder / "jobs").glob("*")) == [], "no file of a share is left"


@pytest.fixture(autouse=True)
def _quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


def test_the_scenario_itself_comes_to_its_end(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    scenario.run()
    scenario.check()
    assert [job.starts for job in scenario.world.jobs.values()] == [1, 2, 1, 1]


@pytest.mark.heavy
def test_an_agent_that_is_killed_at_any_instant_is_followed_by_one_that_goes_on(fast_folder: Path) -> None:
    for instant in itertools.count(1):
        scenario = Scenario(fast_folder / str(instant))
        scenario.world.instants, scenario.world.kill_agent_at = 0, instant
        scenario.run()
        scenario.check()
        if scenario.world.kill_agent_at is not None:  # it ended before that instant came
            break
    assert instant > 60


@pytest.mark.heavy
def test_an_agent_that_is_killed_while_a_job_begins_anew_with_less_is_followed_by_one_that_goes_on(
    fast_folder: Path,
) -> None:
    for instant in itertools.count(1):
        world = LocalWorld(fast_folder / str(instant), cpu_milli=4000, slot_seconds=6.0)
        job = world.submit("tight", epochs=1)
        job.fits = Allocation(1, 1)
        world.instants, world.kill_agent_at = 0, instant
        for _ in range(30):
            try:
                observed = world.backend.observe()
                if observed is None:
                    break
                size = {one.job_id: Allocation(min(2, one.max_workers), min(2, one.max_ps)) for one in observed[0].jobs}
                world.backend.apply(Decision(size))
            except AgentKilled:
                world.kill_agent_at = None
                world.restart()
        record = world.backend.table.get("tight")
        assert record is not None
        assert (record.state, world.ends) == (JobState.DONE, {"tight": 1})
        assert (job.process, job.samples) == (None, job.total_samples)
        if world.kill_agent_at is not None:  # it ended before that instant came
            break
    assert instant > 10


DEATHS: list[Callable[[SimulatedJob], None]] = [
    SimulatedJob.kill,
    SimulatedJob.lose_coordinator,
    SimulatedJob.lose_task,
]


@pytest.mark.heavy
@pytest.mark.parametrize("dies", DEATHS, ids=["launcher", "coordinator", "task"])
@pytest.mark.parametrize("name", ["ps", "ring", "script"])
def test_processes_that_die_in_any_state_are_followed_by_others(
    fast_folder: Path, name: str, dies: Callable[[SimulatedJob], None]
) -> None:
    """Every 1.35 s of the scenario: a start takes 2 s, a resize 0.5 s, and each is hit in its middle."""
    states = set()
    for number in range(16):
        scenario = Scenario(fast_folder / str(number))
        world = scenario.world
        job = world.jobs[name]

        def die(job: SimulatedJob = job) -> None:
            if job.process is not None:
                states.add(job.phase)
                dies(job)

        world.at.append((world.now + 0.2 + 1.35 * number, die))
        scenario.run()
        scenario.check()
    assert len(states) >= 2


def test_a_job_that_fails_to_change_is_told_of_and_does_not_stop_the_others(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, cpu_milli=9000, resize_seconds=3.0)
    jobs = {name: world.submit(name, epochs=50) for name in ("deaf", "silent", "sound")}
    for sizes in ((1, 1), (2, 2)):
        observed = world.backend.observe()
        assert observed is not None
        world.backend.apply(Decision({name: Allocation(*sizes) for name in jobs}))
        jobs["deaf"].deaf = True
        jobs["silent"].silent_until_seconds = world.now + 1000.0
    assert {name: job.held for name, job in jobs.items()} == {
        "deaf": Allocation(1, 1),
        "silent": Allocation(1, 1),
        "sound": Allocation(2, 2),
    }
