"""What a TrainingJob's agent does when what it sees, or what it was told, is older than what has happened."""

from __future__ import annotations

import pytest
from simulated_training import Killed, World
from training_objects import job_object

from cluster_agent.backends.kubernetes.training.plan import GANG_SECONDS
from cluster_agent.backends.kubernetes.training.story.statuses import Granted
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import Allocation

UID = job_object()["metadata"]["uid"]


def go_on(world: World, seconds: float = 1.0) -> None:
    world.now += seconds
    world.live()
    world.poll()


def decide(world: World, workers: int, name: str) -> None:
    world.controller.grant(UID, Granted(Allocation(workers, 1), name, "v1", "", 7, 1e9))


def growing(journal: bool = True) -> World:
    """A job that trains with two workers, and whose third one's pod was just made."""
    found = job_object()
    if not journal:
        del found["spec"]["coordinator"]
    world = World(found)
    decide(world, 2, "d1")
    for _ in range(4):
        go_on(world)
    decide(world, 3, "d2")
    while "worker-2" not in world.made:
        go_on(world)
    return world


def test_a_worker_that_came_and_went_is_not_started_again_on_what_was_said_before() -> None:
    world = growing()
    assert world.brain is not None
    world.is_told_late = True
    go_on(world)
    assert world.brain.tasks["worker-2"] == "member"
    world.vanish("worker-2")  # as when it is evicted
    for _ in range(3):
        world.now += 1.0
        world.poll()
    assert world.made.count("worker-2") == 1
    world.is_told_late = False
    for _ in range(4):
        go_on(world)
    assert world.brain.phase is JobPhase.RUNNING
    assert world.made.count("worker-2") == 1, "another one took its place"
    assert "worker-3" in world.made


def test_a_worker_whose_end_was_reported_is_not_started_again_on_what_was_said_before() -> None:
    world = growing()
    assert world.brain is not None
    world.is_told_late = True
    go_on(world)
    world.end("worker-2", 1, "no GPU")
    world.poll()
    assert ("report", "worker-2") in world.writes
    world.vanish("worker-2")
    world.poll()
    assert world.made.count("worker-2") == 1


@pytest.mark.parametrize("kill_at", ["report", "create"])
def test_an_agent_that_is_killed_at_that_moment_is_followed_by_one_that_asks_first(kill_at: str) -> None:
    world = growing()
    world.is_told_late = True
    go_on(world)
    world.end("worker-2", 1, "no GPU")

    def strike(verb: str, path: str) -> None:
        if verb == kill_at:
            world.before_write = lambda *_: None
            raise Killed

    world.before_write = strike
    world.poll()
    world.vanish("worker-2")
    for _ in range(3):
        world.now += 1.0
        world.poll()
    assert world.made.count("worker-2") == 1
    world.is_told_late = False
    for _ in range(4):
        go_on(world)
    assert world.brain is not None
    assert world.brain.phase is JobPhase.RUNNING
    assert world.made.count("worker-2") == 1
    assert "worker-3" in world.tasks()


def test_one_that_its_coordinator_still_waits_for_is_made_again() -> None:
    world = growing()
    assert world.brain is not None
    world.vanish("worker-2")  # before it ran
    world.poll()
    assert world.made.count("worker-2") == 1, "what was said before may be of before"
    world.now += 1.0
    world.poll()
    assert world.made.count("worker-2") == 2


def test_a_job_that_is_over_is_not_begun_again_by_an_agent_that_has_not_seen_its_end() -> None:
    world = growing()
    for _ in range(3):
        go_on(world)
    assert world.brain is not None
    world.brain.phase = JobPhase.FINISHED
    while world.status["phase"] != "Complete":
        go_on(world)
    for name in ["coordinator", *world.tasks()]:
        world.vanish(name)  # somebody has cleaned up
    said, made = world.status, len(world.made)
    world.take_over(behind=frozenset({"TrainingJob"}))
    for _ in range(3):
        go_on(world)
    assert (world.status, len(world.made)) == (said, made)
    world.lagging = frozenset()
    go_on(world)
    assert (world.status, len(world.made)) == (said, made)


@pytest.mark.parametrize("journal", [True, False])
def test_no_gang_is_made_beside_one_that_was_not_seen(journal: bool) -> None:
    world = growing(journal)
    world.end("worker-0", 143)  # another one takes its place: its name is of the past
    while "worker-3" not in world.tasks():
        go_on(world)
    world.vanish("worker-0")
    made = len(world.made)
    world.views[0]["Pod"] = {}
    world.take_over(behind=frozenset({"Pod"}))
    for _ in range(3):
        go_on(world)
    world.lagging = frozenset()
    for _ in range(3):
        go_on(world)
    assert world.made[made:] == []
    assert world.brain is not None
    assert world.brain.phase is JobPhase.RUNNING


def given_back(world: World) -> list[str]:
    return [path for verb, path in world.writes if verb == "delete"]


def test_an_agent_that_was_stopped_gives_pods_that_do_not_come_the_whole_time_again() -> None:
    world = World(job_object())
    decide(world, 2, "d1")
    world.poll()
    made = list(world.tasks())
    assert made

    def stands_still(seconds: float) -> None:
        for _ in range(round(seconds / 30.0)):
            world.now += 30.0
            world.poll()

    stands_still(GANG_SECONDS - 60.0)
    assert list(world.tasks()) == made
    world.now += 3600.0  # stopped: its nodes may have been made meanwhile
    world.poll()
    stands_still(GANG_SECONDS - 60.0)
    assert list(world.tasks()) == made
    assert not given_back(world)
    stands_still(120.0)
    assert given_back(world), "who does not come is given up all the same"
