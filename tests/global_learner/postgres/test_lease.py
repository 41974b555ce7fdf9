"""The lease as the active learner sees it, by a clock of the test's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from global_learner.errors import DatabaseAway, LeaseLost, NotActive
from global_learner.postgres.lease import Lease, LeaseKeeper


class World:
    """A clock, a table that answers as it is told, and one lease of ten seconds that was taken at 0."""

    def __init__(self) -> None:
        self.now = 0.0
        self.answer: Exception | None = None
        self.takes_seconds = 0.0
        self.lost: list[LeaseLost] = []
        self.lease = Lease(7, 10.0, 0.0, lambda: self.now)
        self.keeper = LeaseKeeper(self.lease, self, self.lost.append, lambda: self.now)  # type: ignore[arg-type]

    def renew(self, fence: int, seconds: float) -> None:
        assert (fence, seconds) == (7, 10.0)
        self.now += self.takes_seconds
        if self.answer is not None:
            raise self.answer


def test_it_ends_a_tenth_before_another_may_take_it() -> None:
    world = World()
    world.now = 8.9
    world.lease.check()
    world.now = 9.0
    with pytest.raises(NotActive, match=r"not renewed"):
        world.lease.check()


def test_a_renewal_counts_from_before_it_was_asked_for() -> None:
    world = World()
    world.now, world.takes_seconds = 5.0, 3.0
    assert world.keeper.renew()
    world.now = 13.9
    world.lease.check()
    world.now = 14.0
    assert world.lease.refusal is not None


def test_while_the_database_is_away_it_runs_out_and_comes_back() -> None:
    world = World()
    world.now, world.answer = 8.0, DatabaseAway("away")
    assert world.keeper.renew()
    world.lease.check()
    world.now = 60.0
    assert isinstance(world.lease.refusal, NotActive)
    world.answer = None
    assert world.keeper.renew()
    world.lease.check()
    assert world.lost == []


def test_once_another_has_it_it_never_comes_back() -> None:
    world = World()
    world.answer = LeaseLost("taken")
    assert not world.keeper.renew()
    assert [str(error) for error in world.lost] == ["taken"]
    world.lease.renewed(1e9)
    with pytest.raises(LeaseLost):
        world.lease.check()


@given(st.lists(st.tuples(st.floats(0.0, 8.0), st.floats(0.0, 8.0), st.booleans()), max_size=20), st.floats(0.0, 30.0))
def test_whoever_may_act_is_within_the_time_that_the_database_was_asked_for(renewals, later) -> None:
    world = World()
    granted_until = 10.0
    for wait, takes, answered in renewals:
        world.now += wait
        world.takes_seconds, world.answer = takes, None if answered else DatabaseAway("away")
        asked_at = world.now
        world.keeper.renew()
        if answered:
            granted_until = max(granted_until, asked_at + 10.0)
    world.now += later
    if world.lease.refusal is None:
        assert world.now < granted_until
