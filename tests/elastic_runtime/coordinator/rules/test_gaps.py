"""A coordinator that was stopped heard nobody meanwhile: nobody is dead for that, and who is dead is found."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from simulated_world import SETTINGS, World

from elastic_runtime.protocol.plan import JobPhase
from foundation.clocks import AwakeClock

TICK_SECONDS, GAP_SECONDS = 0.1, 2.0


@dataclass
class Coordinator:
    """A machine in a process with a made-up clock: ticks, and is stopped now and then."""

    world: World
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.clock = AwakeClock(GAP_SECONDS, lambda: self.seconds)
        self.missed_seconds = 0.0

    def tick(self, after_seconds: float = TICK_SECONDS) -> None:
        self.seconds += after_seconds
        self.world.now, missed = self.clock(), self.clock.missed_seconds
        missed_seconds, self.missed_seconds = missed - self.missed_seconds, missed
        self.world.take(self.world.machine.on_tick(self.world.now, missed_seconds))

    def run(self, seconds: float, every_seconds: float = TICK_SECONDS) -> None:
        for _ in range(round(seconds / every_seconds)):
            self.tick(every_seconds)

    def hear(self) -> None:
        for member in list(self.world.members.values()):
            self.world.deliver(member)
            self.world.send(member)


def in_training() -> Coordinator:
    world = World()
    coordinator = Coordinator(world, world.now)
    world.training()
    coordinator.seconds = world.now
    coordinator.clock = AwakeClock(GAP_SECONDS, lambda: coordinator.seconds)
    coordinator.hear()
    return coordinator


@pytest.mark.parametrize("stopped_seconds", [3.0, 12.0, 45.0, 90.0, 12 * 3600.0])
def test_nobody_is_lost_over_a_gap_of_the_coordinators_own(stopped_seconds: float) -> None:
    coordinator = in_training()
    before = coordinator.world.views[-1]
    for _ in range(3):
        coordinator.run(9.0)
        coordinator.tick(stopped_seconds)
        coordinator.run(9.0)  # until a report comes through again, if it takes that long
        coordinator.hear()
        coordinator.run(9.0)
        coordinator.hear()
    view = coordinator.world.views[-1]
    assert view.phase is JobPhase.RUNNING
    assert (view.generation, view.substitutes, view.members) == (before.generation, before.substitutes, before.members)


def test_a_report_before_the_first_tick_after_a_gap_does_not_bring_deadlines_about() -> None:
    coordinator = in_training()
    world = coordinator.world
    world.resize("r", 3, 2)
    world.rounds(lambda view: view.proposal is not None)
    coordinator.seconds = world.now
    coordinator.clock = AwakeClock(GAP_SECONDS, lambda: coordinator.seconds)
    coordinator.seconds += 10 * SETTINGS.vote_seconds
    world.now = coordinator.clock()
    world.send(world.members["ps-0"])
    assert world.views[-1].substitutes == {}
    assert world.views[-1].phase is not JobPhase.RECOVERING


def test_who_died_in_the_gap_is_found_after_it() -> None:
    coordinator = in_training()
    coordinator.world.members.pop("worker-0")
    coordinator.tick(3600.0)
    for _ in range(11):
        coordinator.hear()
        coordinator.run(1.0)
    assert coordinator.world.views[-1].substitutes == {"worker-0": "worker-1"}


def test_a_coordinator_that_is_late_at_every_look_finds_the_dead_too() -> None:
    coordinator = in_training()
    coordinator.world.members.pop("worker-0")
    for _ in range(100):
        coordinator.tick(6.0)  # its disk takes so long, each time
        coordinator.hear()
        if coordinator.world.views[-1].substitutes:
            break
    assert coordinator.world.views[-1].substitutes == {"worker-0": "worker-1"}
