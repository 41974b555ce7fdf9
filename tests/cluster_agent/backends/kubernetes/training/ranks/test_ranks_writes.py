"""Each write of an all-reduce job's life refused, lost, or the last of its agent: whoever follows gets it there."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from simulated_ranks import RanksWorld
from simulated_training import Killed
from training_objects import job_object

from cluster_agent.backends.kubernetes.training.story.statuses import Granted
from cluster_agent.kubernetes.errors import ApiUnanswered, Forbidden
from policy_net.domain import SUSPENDED, Allocation

UID = job_object()["metadata"]["uid"]
LOOKS = 60
LIFE = (Allocation(2), Allocation(3), SUSPENDED, Allocation(1))
MOST_WRITES = 60
Strike = Callable[[str, str], None]


def nothing(verb: str, path: str) -> None:
    del verb, path


def decide(world: RanksWorld, number: int, size: Allocation) -> None:
    world.controller.grant(UID, Granted(size, f"d{number}", "v1", "", 7, 1e9))


def go_on(world: RanksWorld, number: int, size: Allocation) -> bool:
    """Until the job has a size; the agent decides it again when it was killed."""
    for _ in range(LOOKS):
        world.now += 10.0
        world.live()
        world.poll()
        decide(world, number, size)
        if size == SUSPENDED and not world.ranks() and world.status.get("phase") == "Queued":
            return True
        if len(world.joined) == size.workers > 0 and world.status.get("workers") == size.workers:
            return True
    return False


def live_through(strike: Callable[[], tuple[Strike, bool]] | None = None) -> RanksWorld:
    world = RanksWorld()
    world.poll()
    if strike is not None:
        hook, after = strike()
        world.before_write, world.after_write = (nothing, hook) if after else (hook, nothing)
    for number, size in enumerate(LIFE):
        decide(world, number, size)
        assert go_on(world, number, size), (size, world.status, world.ranks())
    return world


def test_a_life_without_trouble_makes_each_gang_once() -> None:
    world = live_through()
    assert world.made == ["worker-0", "worker-1", "worker-0", "worker-1", "worker-2", "worker-0"]
    assert world.status["ranks"]["gang"] == 3
    assert world.status["allocation"]["leaseEpoch"] == 7
    assert len(world.writes) <= MOST_WRITES
    reasons = [reason for reason, _ in world.told_events]
    for reason in ("Starting", "Running", "Resizing", "Suspending"):
        assert reason in reasons


@pytest.mark.parametrize(
    ("kind", "after"),
    [("killed", False), ("killed", True), ("unanswered", False), ("unanswered", True), ("refused", False)],
)
def test_whatever_becomes_of_any_of_its_writes_it_gets_there(kind: str, after: bool) -> None:
    for number in range(MOST_WRITES):
        struck: list[str] = []

        def strike(number: int = number, struck: list[str] = struck) -> tuple[Strike, bool]:
            left = itertools.count()

            def hook(verb: str, path: str) -> None:
                if next(left) != number:
                    return
                struck.append(f"{verb} {path}")
                if kind == "killed":
                    raise Killed
                if kind == "refused":
                    raise Forbidden(f"{verb} {path}: exceeded quota", 403, "Forbidden")
                raise ApiUnanswered(f"{verb} {path}: 500")

            return hook, after

        world = live_through(strike)
        assert world.steps > 0
        if not struck:
            break
    assert 10 < number < MOST_WRITES - 1, "all of them were struck"


def test_a_gang_of_which_a_part_is_refused_is_given_back_and_tried_again_later() -> None:
    world = RanksWorld()
    world.poll()
    refuses = True

    def refuse(verb: str, path: str) -> None:
        if refuses and verb == "create" and path.endswith("/pods") and world.exists("worker-0"):
            raise Forbidden("exceeded quota: team, requested: pods=1, used: pods=1, limited: pods=1", 403, "Forbidden")

    world.before_write = refuse
    decide(world, 0, Allocation(2))
    world.poll()
    assert world.status["phase"] == "Queued"
    assert "digits-worker-1 was refused: exceeded quota" in world.status["message"]
    world.live()
    assert world.ranks() == []
    world.poll()
    assert world.ranks() == [], "not at every look"
    refuses = False
    assert go_on(world, 0, Allocation(2))


def test_a_size_for_which_there_is_no_room_takes_nothing_from_the_one_that_trains() -> None:
    world = RanksWorld()
    world.room_cpu = 1000
    world.start_agent()
    world.poll()
    decide(world, 0, Allocation(2))
    assert go_on(world, 0, Allocation(2))
    uids = {name: world.task(name)["metadata"]["uid"] for name in world.ranks()}
    world.room_cpu = 400
    world.start_agent()
    decide(world, 1, Allocation(3))
    for _ in range(5):
        world.now += 10.0
        world.live()
        world.poll()
    assert (world.status["phase"], world.status["message"]) == ("Running", "waits for room to grow")
    assert {name: world.task(name)["metadata"]["uid"] for name in world.ranks()} == uids
    world.room_cpu = 64_000
    world.start_agent()
    assert go_on(world, 1, Allocation(3))
