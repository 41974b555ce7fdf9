"""A worker holds as many batches ahead as last for about two seconds, and tells soon what it has done."""

from elastic_runtime.model.sample_leases import SampleLease
from elastic_runtime.worker.lease_queue import LeasesAhead


def leases(*numbers: int) -> tuple[SampleLease, ...]:
    return tuple(SampleLease(number, 0, 4 * number, 4 * number + 4) for number in numbers)


def begun() -> LeasesAhead:
    made = LeasesAhead()
    made.begin(1)
    return made


def test_nothing_is_asked_before_a_generation_began() -> None:
    assert not LeasesAhead().is_due(100.0)
    assert begun().is_due(100.0)


def test_what_is_taken_or_told_is_not_taken_up_again() -> None:
    held = begun()
    held.on_answer(held.question(10.0), leases(1, 2), finished=False, now=10.0)
    first = held.take()
    assert first is not None
    held.on_answer(held.question(11.0), leases(1, 2, 3), finished=False, now=11.0)
    assert [one.id for one in held.ahead] == [2, 3]
    held.on_done(first.id)
    question = held.question(12.0)
    assert question[1] == (1,)
    held.on_answer(question, leases(2, 3), finished=False, now=12.0)
    assert held.question(13.0)[1] == (), "it is told once"


def test_an_answer_that_is_lost_tells_nothing() -> None:
    held = begun()
    held.on_answer(held.question(10.0), leases(1), finished=False, now=10.0)
    taken = held.take()
    assert taken is not None
    held.on_done(taken.id)
    held.on_silence(held.question(11.0), 11.0)
    assert held.question(12.0)[1] == (1,)
    assert not held.is_due(11.1)
    assert held.is_due(11.3)


def test_more_is_held_where_it_lasted_a_short_time_and_less_where_it_lasted_long() -> None:
    held = begun()
    wanted = []
    for now, number in ((10.0, 1), (10.1, 2), (10.2, 3), (20.0, 4)):
        question = held.question(now)
        wanted.append(question[2])
        held.on_answer(question, leases(number), finished=False, now=now)
        taken = held.take()
        assert taken is not None
        held.on_done(taken.id)
    assert [*wanted, held.question(20.5)[2]] == [4, 2, 4, 8, 4], "nothing was asked for long before the first"


def test_where_nothing_was_to_be_had_it_is_asked_again_after_a_while() -> None:
    held = begun()
    held.on_answer(held.question(10.0), (), finished=False, now=10.0)
    assert held.is_last_taken
    assert not held.is_due(10.1)
    assert held.is_due(10.3)


def test_who_stops_wants_nothing_and_is_told_when_all_is_told() -> None:
    held = begun()
    held.on_answer(held.question(10.0), leases(1, 2), finished=False, now=10.0)
    taken = held.take()
    assert taken is not None
    held.on_done(taken.id)
    held.stop()
    assert not held.ahead
    question = held.question(11.0)
    assert question == (1, (1,), 0)
    held.on_answer(question, leases(2), finished=False, now=11.0)
    assert not held.must_ask
    assert not held.ahead


def test_an_answer_of_another_generation_is_not_taken_up() -> None:
    held = begun()
    question = held.question(10.0)
    held.begin(2)
    held.on_answer(question, leases(1), finished=True, now=10.0)
    assert not held.ahead
    assert not held.finished
