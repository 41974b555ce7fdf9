"""The fleet as the learner sees it: two agents that call themselves by one name are told from one that restarts."""

import pytest
from folding_clock import FoldingClock

from foundation.clocks import AwakeClock
from global_learner.fleet import Fleet
from global_learner.registry.assignments import ClusterRegistration


class Names:
    """A fleet of one cluster, whose agents register and beat."""

    def __init__(self) -> None:
        self.clock = FoldingClock()
        self.fleet = Fleet((), {}, self.clock)
        self.incarnation = 0

    def register(self) -> int:
        self.incarnation += 1
        self.fleet.on_registered(ClusterRegistration("north", self.incarnation, 1))
        return self.incarnation

    def beat(self, incarnation: int, after_seconds: float = 2.0) -> int:
        """An agent's heartbeat, and its new registration if the learner asks for one; its incarnation then."""
        self.clock.now += after_seconds
        return self.register() if self.fleet.on_heard("north", incarnation) is None else incarnation

    @property
    def contested(self) -> bool:
        entry = self.fleet.get("north")
        assert entry is not None
        return self.fleet.is_contested(entry)


def test_two_agents_of_one_name_are_noticed_when_the_name_is_taken_for_the_third_time() -> None:
    names = Names()
    first, second = names.register(), names.register()
    seen = []
    for _ in range(2):
        first = names.beat(first)
        seen.append(names.contested)
        second = names.beat(second)
        seen.append(names.contested)
    assert seen == [False, False, True, True]


def test_they_stay_noticed_while_each_takes_the_name_back_every_ten_minutes_and_not_afterwards() -> None:
    names = Names()
    agents = [names.register(), names.register()]
    for number in range(12):
        agents[number % 2] = names.beat(agents[number % 2], after_seconds=300.0)
        assert names.contested == (number >= 2)
    for _ in range(10):
        agents[1] = names.beat(agents[1], after_seconds=60.0)
        assert names.contested
    names.beat(agents[1], after_seconds=120.0)
    assert not names.contested


@pytest.mark.parametrize("beats", [0, 1, 5])
def test_an_agent_that_ends_and_begins_again_and_again_is_no_second_one(beats: int) -> None:
    names = Names()
    for _ in range(50):
        incarnation = names.register()
        for _ in range(beats):
            assert names.beat(incarnation, after_seconds=0.5) == incarnation
        assert not names.contested


def test_an_agent_that_was_moved_to_another_machine_is_no_second_one() -> None:
    names = Names()
    old, new = names.register(), names.register()
    names.beat(old)  # before it ends
    new = names.beat(new)
    for _ in range(50):
        new = names.beat(new)
    assert not names.contested


def test_a_call_that_was_under_way_when_its_agent_registered_anew_is_no_second_agent() -> None:
    names = Names()
    for _ in range(50):
        before = names.register()
        names.clock.now += 5.0
        names.register()
        names.clock.now += 0.01
        assert names.fleet.on_heard("north", before) is None
        assert not names.contested


def test_a_learner_that_was_stopped_takes_no_cluster_for_silent_and_one_that_listens_does() -> None:
    source = FoldingClock()
    clock = AwakeClock(10.0, source)
    fleet = Fleet((), {}, clock)
    fleet.on_registered(ClusterRegistration("north", 1, 1))
    entry = fleet.get("north")
    assert entry is not None
    fleet.on_applied(entry)
    for _ in range(45):
        source.now += 1.0
        clock()
    source.now += 12 * 3600.0
    assert fleet.silent_seconds(entry) == 55.0
    assert fleet.present() == ["north"]
    for _ in range(6):
        source.now += 1.0
        clock()
    assert fleet.present() == [], "it has had a minute"
