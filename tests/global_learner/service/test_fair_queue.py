"""Seats that callers share: nobody has more than its share, no seat is left empty, and all have their turns."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from global_learner.errors import ShareTaken
from global_learner.service.lanes import FairQueue, QueueShare, Seat

SHARE = QueueShare(seats=4, seats_per_caller=2, waiting_per_caller=3, bytes_per_caller=100)
CALLERS = ("north", "south", "east")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from(CALLERS)),
        st.tuples(st.just("end"), st.integers(0, 30)),
        st.tuples(st.just("hold"), st.integers(0, 30), st.sampled_from((0, 60, 100))),
    ),
    max_size=60,
)


@given(STEPS)
def test_whatever_comes_and_goes_shares_hold_and_no_seat_is_left_empty(steps: list[tuple]) -> None:
    asyncio.run(_follow(steps))


async def _follow(steps: list[tuple]) -> None:
    queue, seats = FairQueue(SHARE), list[Seat]()
    for kind, *arguments in steps:
        if kind == "ask":
            waiting = sum(seat.caller == arguments[0] and not seat.begun for seat in seats)
            try:
                seats.append(queue.ask(arguments[0]))
            except ShareTaken:
                assert waiting == SHARE.waiting_per_caller
        elif arguments[0] < len(seats):
            if kind == "end":
                queue.give_back(seats.pop(arguments[0]))
            elif seats[arguments[0]].begun:
                queue.hold(seats[arguments[0]], arguments[1])
        _check(queue, seats)
    for seat in list(seats):
        queue.give_back(seat)
    assert queue.seated == queue.waiting == 0


def _check(queue: FairQueue, seats: list[Seat]) -> None:
    seated = Counter(seat.caller for seat in seats if seat.begun)
    waiting = Counter(seat.caller for seat in seats if not seat.begun)
    unread = Counter[str]()
    for seat in seats:
        unread[seat.caller] += seat.unread_bytes
    assert queue.seated == seated.total() <= SHARE.seats
    assert queue.waiting == waiting.total()
    for caller in CALLERS:
        assert seated[caller] <= SHARE.seats_per_caller
        assert waiting[caller] <= SHARE.waiting_per_caller
        if waiting[caller] and not queue.is_full:
            full = unread[caller] >= SHARE.bytes_per_caller
            assert full or seated[caller] == SHARE.seats_per_caller


async def test_a_free_seat_goes_round_and_not_to_whoever_asked_most() -> None:
    queue = FairQueue(QueueShare(seats=1, seats_per_caller=1, waiting_per_caller=50, bytes_per_caller=100))
    now = queue.ask("greedy")
    greedy = [queue.ask("greedy") for _ in range(50)]
    others = [queue.ask(caller) for caller in ("north", "south")]
    order = []
    for _ in range(6):
        queue.give_back(now)
        now = next(seat for seat in (*greedy, *others) if seat.begun and seat not in order)
        order.append(now)
    assert Counter(seat.caller for seat in order[:3]) == Counter(("greedy", "north", "south"))


async def test_answers_that_are_not_read_hold_up_only_their_own_caller() -> None:
    queue = FairQueue(QueueShare(seats=10, seats_per_caller=5, waiting_per_caller=5, bytes_per_caller=100))
    unread = queue.ask("greedy")
    queue.hold(unread, 100)
    next_one = queue.ask("greedy")
    assert not next_one.begun
    assert not queue.within_share("greedy")
    assert queue.ask("north").begun
    queue.give_back(unread)
    assert next_one.begun


async def test_one_call_too_many_of_a_caller_is_refused_and_leaves_nothing() -> None:
    queue = FairQueue(QueueShare(seats=1, seats_per_caller=1, waiting_per_caller=0, bytes_per_caller=100))
    seat = queue.ask("north")
    with pytest.raises(ShareTaken, match="come again"):
        queue.ask("north")
    queue.give_back(seat)
    assert queue.ask("north").begun


def test_who_is_refused_leaves_nothing_behind() -> None:
    queue = FairQueue(QueueShare(seats=1, seats_per_caller=1, waiting_per_caller=0, bytes_per_caller=1))

    async def ask() -> None:
        seat = queue.ask("north")
        with pytest.raises(ShareTaken):
            queue.ask("south")
        queue.give_back(seat)

    asyncio.run(ask())
    assert not queue.callers
