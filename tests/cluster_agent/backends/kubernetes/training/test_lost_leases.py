"""Leases that are lost amid a look at TrainingJobs: nothing is written after that, and no old decision comes back."""

from __future__ import annotations

import pytest
from simulated_training import World
from training_objects import job_object

from cluster_agent.backends.kubernetes.training.story.statuses import Granted
from cluster_agent.kubernetes.training.training_job import training_job
from policy_net.domain import SUSPENDED, Allocation

UID = job_object()["metadata"]["uid"]


def grant(world: World, size: Allocation, decision: str, epoch: int = 7) -> None:
    world.controller.grant(UID, Granted(size, decision, "v1", "", epoch, 1e9))


class LostAt:
    """A job's life, amid which the Lease is lost after a write; another agent goes on at the next look."""

    def __init__(self, number: int) -> None:
        self.left, self.world = number, World(job_object(checkpoints={"claimName": "shared", "lastOnDelete": True}))
        self.world.after_write = self._after_write
        self.lost_after = ""
        self.granted = SUSPENDED, ""

    def _after_write(self, verb: str, path: str) -> None:
        if self.left == 0:
            self.world.acts, self.lost_after = False, f"{verb} {path}"
        self.left -= 1

    def go_on(self, looks: int = 12) -> None:
        for _ in range(looks):
            self.world.poll()  # fails at a write of one that does not act
            if not self.world.acts:
                self.world.acts = True
                self.world.start_agent()
                grant(self.world, *self.granted)
            self.world.now += 10.0
            if not self.world.is_gone:
                self.world.live()

    def decide(self, size: Allocation, decision: str) -> None:
        self.granted = size, decision
        grant(self.world, size, decision)
        self.go_on()

    def whole(self) -> str:
        """The write after which the Lease was lost; empty where there were not so many."""
        self.go_on(2)
        self.decide(Allocation(2, 1), "a")
        self.decide(Allocation(4, 2), "b")
        self.world.vanish("worker-0")
        self.go_on()
        self.decide(Allocation(1, 1), "c")
        assert (self.world.status["workers"], self.world.status["ps"]) == (1, 1), self.lost_after
        self.decide(SUSPENDED, "d")
        self.decide(Allocation(2, 1), "e")
        self.world.delete_job()
        self.go_on(20)
        assert self.world.is_gone, self.lost_after
        return self.lost_after


@pytest.mark.heavy
def test_whoever_loses_the_lease_after_any_write_makes_no_other() -> None:
    lost_after = []
    while found := LostAt(len(lost_after)).whole():
        lost_after.append(found)
    kinds = {
        (each.split()[0], each.split("/")[-2 if each.startswith(("patch", "delete")) else -1]) for each in lost_after
    }
    assert {verb for verb, _ in kinds} == {"create", "patch", "delete", "ask", "report"}
    assert len(lost_after) > 30


def test_what_was_decided_under_a_lease_that_was_lost_is_not_asked_for_under_the_next() -> None:
    world = World()
    world.poll()
    grant(world, Allocation(1, 1), "a")
    for _ in range(6):
        world.poll()
        world.live()
        world.now += 10.0
    assert world.status["workers"] == 1
    grant(world, Allocation(3, 1), "b")
    world.acts = False
    world.poll()
    world.acts = True
    for _ in range(6):
        world.poll()
        world.live()
        world.now += 10.0
    assert (world.status["workers"], world.status["allocation"]["decisionId"]) == (1, "a")


def test_what_one_that_led_since_has_decided_holds() -> None:
    world = World()
    world.poll()
    grant(world, Allocation(3, 1), "mine", epoch=7)
    stated = {"workers": 2, "ps": 1, "decisionId": "theirs"}
    for epoch, holds in ((6, Allocation(3, 1)), (7, Allocation(3, 1)), (8, Allocation(2, 1))):
        world.put({**world.job, "status": {"allocation": {**stated, "leaseEpoch": epoch}}})
        assert world.controller.desired(training_job(world.job)) == holds
