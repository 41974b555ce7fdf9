"""Electors on one Lease and a clock that tests turn: one writer at a time, whatever fails."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_agent.kubernetes.api_server import micro_time
from cluster_agent.kubernetes.elector import EPOCH, Elector, LeaseTimes
from cluster_agent.kubernetes.errors import AlreadyExists, ApiUnanswered, Conflict, NotFound
from cluster_agent.kubernetes.resources import Json

TIMES = LeaseTimes(lease_seconds=15, renew_deadline_seconds=10.0, retry_seconds=2.0)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now


class Leases:
    """One Lease as a server keeps it; `fault` is called before and after each request."""

    def __init__(self) -> None:
        self.lease: Json | None = None
        self.version = 0
        self.writes: list[Json] = []
        self.before: Callable[[str], None] = lambda verb: None
        self.after: Callable[[str], None] = lambda verb: None

    def get(self, path: str, query: Any = None) -> Json:
        self.before("get")
        if self.lease is None:
            raise NotFound("none", 404)
        self.after("get")
        return copy.deepcopy(self.lease)

    def create(self, path: str, body: Json, query: Any = None) -> Json:
        self.before("create")
        if self.lease is not None:
            raise AlreadyExists("there", 409)
        return self._store(body, "create")

    def replace(self, path: str, body: Json, query: Any = None) -> Json:
        self.before("replace")
        if self.lease is None:
            raise NotFound("none", 404)
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise Conflict("changed", 409)
        return self._store(body, "replace")

    def _store(self, body: Json, verb: str) -> Json:
        self.version += 1
        self.lease = copy.deepcopy(body)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        self.writes.append(self.lease)
        self.after(verb)
        return copy.deepcopy(self.lease)


def unanswered(verb: str) -> None:
    raise ApiUnanswered(f"{verb}: no answer")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def leases() -> Leases:
    return Leases()


def elector(leases: Leases, clock: Clock, name: str) -> Elector:
    return Elector(leases, "fedl2", "agent", name, clock, clock.wall, TIMES)


def test_the_first_takes_the_lease_and_the_second_waits_for_its_end(leases: Leases, clock: Clock) -> None:
    a, b = elector(leases, clock, "a"), elector(leases, clock, "b")
    a.step()
    assert a.seconds_left == 10.0
    for _ in range(20):
        clock.now += 2.0
        a.step()
        b.step()
        assert (a.seconds_left, b.seconds_left) == (10.0, 0.0)
    assert b.holder == "a"
    first = a.epoch
    clock.now += 10.0
    assert a.seconds_left == 0.0
    b.step()
    assert b.seconds_left == 0.0
    clock.now += 5.5
    b.step()
    assert (b.seconds_left, b.holder) == (10.0, "b")
    assert b.epoch > first


def test_a_lease_given_back_is_taken_at_once_and_its_giver_writes_no_more(leases: Leases, clock: Clock) -> None:
    a, b = elector(leases, clock, "a"), elector(leases, clock, "b")
    a.step()
    b.step()
    a.release()
    assert a.seconds_left == 0.0
    b.step()
    assert b.seconds_left == 10.0
    writes = len(leases.writes)
    a.step()
    assert len(leases.writes) == writes


def test_a_renewal_counts_from_before_its_request(leases: Leases, clock: Clock) -> None:
    a = elector(leases, clock, "a")
    a.step()

    def slow(verb: str) -> None:
        clock.now += 4.0

    leases.after = slow
    clock.now += 2.0
    a.step()
    assert a.seconds_left == 6.0


def test_who_cannot_renew_stops_before_another_may_begin(leases: Leases, clock: Clock) -> None:
    a, b = elector(leases, clock, "a"), elector(leases, clock, "b")
    a.step()
    b.step()
    leases.before = unanswered
    for _ in range(5):
        clock.now += 2.0
        a.step()
    assert a.seconds_left == 0.0
    a.step()
    leases.before = lambda verb: None
    b.step()
    assert b.seconds_left == 0.0
    clock.now += 5.5
    b.step()
    assert b.seconds_left == 10.0
    a.step()
    assert a.seconds_left == 0.0


def test_a_renewal_whose_answer_was_lost_is_found_to_have_happened(leases: Leases, clock: Clock) -> None:
    a = elector(leases, clock, "a")
    a.step()
    epoch = a.epoch
    leases.after = lambda verb: unanswered(verb) if verb == "replace" else None
    clock.now += 2.0
    a.step()
    assert a.seconds_left == 8.0
    leases.after = lambda verb: None
    clock.now += 2.0
    a.step()
    assert (a.seconds_left, a.epoch) == (10.0, epoch)


def test_a_holder_that_was_frozen_wakes_up_without_the_lease(leases: Leases, clock: Clock) -> None:
    a, b = elector(leases, clock, "a"), elector(leases, clock, "b")
    a.step()
    b.step()
    for _ in range(8):
        clock.now += 2.0
        b.step()
    assert (a.seconds_left, b.seconds_left) == (0.0, 10.0)
    a.step()
    assert (a.seconds_left, a.holder) == (0.0, "b")


def test_a_watcher_that_was_stopped_does_not_take_its_own_silence_for_the_holders(leases: Leases, clock: Clock) -> None:
    """As a laptop that slept with both of them: the holder takes the lease again."""
    a, b = elector(leases, clock, "a"), elector(leases, clock, "b")
    a.step()
    b.step()
    epoch = a.epoch
    clock.now += 3600.0
    assert a.seconds_left == 0.0
    b.step()
    assert b.seconds_left == 0.0
    a.step()
    assert a.seconds_left == 10.0
    assert a.epoch > epoch
    for _ in range(20):
        clock.now += 2.0
        a.step()
        b.step()
    assert (a.seconds_left, b.seconds_left) == (10.0, 0.0)
    while not b.seconds_left:  # and now it ends for good
        clock.now += 2.0
        b.step()
    assert a.seconds_left == 0.0


def test_a_lease_that_was_deleted_is_waited_for_as_if_it_were_held_and_its_epoch_rises(
    leases: Leases, clock: Clock
) -> None:
    a, b = elector(leases, clock, "a"), elector(leases, clock, "b")
    a.step()
    b.step()
    before = a.epoch
    leases.lease = None
    b.step()
    assert b.seconds_left == 0.0, "a may still write"
    clock.now += 2.0
    a.step()
    assert a.seconds_left == 0.0
    b.step()
    clock.now += 6.75
    b.step()
    clock.now += 6.75
    b.step()
    assert b.seconds_left == 10.0
    assert b.epoch > before


def test_a_lease_full_of_nonsense_is_one_that_nobody_holds(leases: Leases, clock: Clock) -> None:
    leases.lease = {
        "metadata": {"name": "agent", "resourceVersion": "0", "annotations": {EPOCH: "-x"}},
        "spec": {"holderIdentity": 7, "leaseTransitions": "many", "leaseDurationSeconds": -1},
    }
    a = elector(leases, clock, "a")
    a.step()
    assert a.seconds_left == 10.0


def test_what_others_wrote_on_the_lease_stays(leases: Leases, clock: Clock) -> None:
    a = elector(leases, clock, "a")
    a.step()
    assert leases.lease is not None
    leases.lease["metadata"]["labels"] = {"team": "x"}
    leases.version += 1
    leases.lease["metadata"]["resourceVersion"] = str(leases.version)
    clock.now += 2.0
    a.step()
    assert a.seconds_left == 8.0
    a.step()
    assert a.seconds_left == 10.0
    assert leases.lease["metadata"]["labels"] == {"team": "x"}


def test_times_have_six_digits_always() -> None:
    assert micro_time(1_700_000_000.0) == "2023-11-14T22:13:20.000000Z"
    assert micro_time(1_700_000_000.25) == "2023-11-14T22:13:20.250000Z"


def test_lease_times_that_would_leave_two_writers_are_refused() -> None:
    with pytest.raises(ValueError, match="renew deadline < lease"):
        LeaseTimes(lease_seconds=10, renew_deadline_seconds=10.0)


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from(["step", "step", "step", "release", "new"]),
            st.sampled_from(["", "", "", "before", "after"]),
            st.floats(0.0, 6.0),
            st.floats(0.0, 3.0),
        ),
        max_size=60,
    )
)
def test_no_two_ever_write_and_no_epoch_is_used_twice(
    steps: list[tuple[str, str, str, float, float]],
) -> None:
    clock, leases = Clock(), Leases()
    made = 0
    electors = {name: elector(leases, clock, name) for name in "abc"}
    epochs: dict[int, str] = {}
    for name, do, fault, wait_seconds, request_seconds in steps:
        clock.now += wait_seconds

        def pass_time(verb: str, seconds: float = request_seconds) -> None:
            clock.now += seconds / 2.0

        def fail(verb: str, seconds: float = request_seconds) -> None:
            clock.now += seconds / 2.0
            unanswered(verb)

        leases.before = fail if fault == "before" else pass_time
        leases.after = fail if fault == "after" else pass_time
        if do == "new":
            made += 1
            electors[name] = elector(leases, clock, f"{name}{made}")
        elif do == "release":
            electors[name].release()
            made += 1
            electors[name] = elector(leases, clock, f"{name}{made}")
        else:
            electors[name].step()
        writers = [each for each in electors.values() if each.seconds_left > 0]
        assert len(writers) <= 1
        for writer in writers:
            assert epochs.setdefault(writer.epoch, writer.identity) == writer.identity
            assert writer.epoch == max(epochs)
