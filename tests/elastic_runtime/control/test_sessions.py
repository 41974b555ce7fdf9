"""Sessions: whatever was changed, sent again, held back or made without the token is not taken, on either side."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_runtime.control import sessions
from elastic_runtime.control.sessions import CallerSession, CoordinatorSessions, UnknownSession, Unproven, session_of
from elastic_runtime.generated import elastic_pb2 as pb

TOKEN = "a-token-for-these-tests"  # noqa: S105 - of no job
METHOD = "/fedl2.elastic.v1.JobControl/Status"


class Clock:
    """Seconds, as a test says."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def pair(clock: Clock | None = None) -> tuple[CallerSession, CoordinatorSessions]:
    """A caller's session, and the coordinator that it is with."""
    clock = clock or Clock()
    coordinator = CoordinatorSessions("digits", TOKEN, clock)
    return caller(coordinator, clock), coordinator


def caller(coordinator: CoordinatorSessions, clock: Clock, token: str = TOKEN, job: str = "digits") -> CallerSession:
    number = CallerSession.draw()
    return CallerSession(token, job, number, coordinator.open(number), clock)


def test_who_has_the_token_is_understood_and_answered() -> None:
    session, coordinator = pair()
    for payload in (b"", b"\x08\x01", b"x" * 100_000):
        number, data = session.seal(METHOD, payload)
        call = coordinator.take(METHOD, data)
        assert call.payload == payload
        assert session.opened(METHOD, number, 0, call.answer(b"one")) == b"one"
        assert session.opened(METHOD, number, 1, call.answer(b"two")) == b"two"
        assert session.is_refusal(METHOD, number, "NOT_FOUND", "no", call.refusal("NOT_FOUND", "no"))


def test_a_sealed_message_is_still_a_message_to_a_program_that_knows_of_no_seals() -> None:
    session, _ = pair()
    request = pb.ResizeRequest(request_id="grow", target=pb.Size(servers=2, workers=3))
    _, data = session.seal(METHOD, request.SerializeToString())
    read = pb.ResizeRequest.FromString(data)
    assert (read.request_id, read.target) == ("grow", request.target)


def test_a_request_says_of_which_session_it_is() -> None:
    clock, number = Clock(), CallerSession.draw()
    opening = CoordinatorSessions("digits", TOKEN, clock).open(number)
    session = CallerSession(TOKEN, "digits", number, opening, clock)
    assert {session_of(session.seal(METHOD, payload)[1]) for payload in (b"", b"x" * 1000)} == {opening.session}
    with pytest.raises(Unproven):
        session_of(b"x" * 1000)


def test_neither_the_token_nor_a_key_is_in_what_is_sent_or_shown() -> None:
    session, coordinator = pair()
    number = CallerSession.draw()
    opening = coordinator.open(number)
    _, data = session.seal(METHOD, b"payload")
    sent = [number, opening.session, opening.number, opening.proof, data, coordinator.take(METHOD, data).answer(b"")]
    assert all(TOKEN.encode() not in one for one in sent)
    assert not any(session._key in one for one in sent)


@pytest.mark.parametrize(("token", "job"), [(TOKEN + "x", "digits"), (TOKEN[:-1], "digits"), (TOKEN, "other")])
def test_a_coordinator_of_another_token_or_job_is_known_before_anything_is_asked(token: str, job: str) -> None:
    clock = Clock()
    with pytest.raises(Unproven):
        caller(CoordinatorSessions("digits", TOKEN, clock), clock, token, job)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_request_or_answer_of_which_any_byte_was_changed_is_not_taken(place: int, change: int) -> None:
    session, coordinator = pair()
    number, data = session.seal(METHOD, b"payload")
    with pytest.raises(Unproven):
        coordinator.take(METHOD, changed(data, place, change))
    answer = coordinator.take(METHOD, data).answer(b"answer")
    with pytest.raises(Unproven):
        session.opened(METHOD, number, 0, changed(answer, place, change))


def changed(data: bytes, place: int, change: int) -> bytes:
    place %= len(data)
    return data[:place] + bytes([data[place] ^ change]) + data[place + 1 :]


def test_an_answer_counts_for_its_own_request_and_place_only() -> None:
    session, coordinator = pair()
    calls = [(number, coordinator.take(METHOD, data)) for number, data in (session.seal(METHOD, b"") for _ in range(2))]
    (first, one), (second, _) = calls
    answer = one.answer(b"answer")
    for method, number, index in ((METHOD, second, 0), (METHOD, first, 1), (METHOD + "x", first, 0)):
        with pytest.raises(Unproven):
            session.opened(method, number, index, answer)
    assert not session.is_refusal(METHOD, second, "NOT_FOUND", "no", one.refusal("NOT_FOUND", "no"))
    assert not session.is_refusal(METHOD, first, "NOT_FOUND", "yes", one.refusal("NOT_FOUND", "no"))
    assert not session.is_refusal(METHOD, first, "NOT_FOUND", "no", b"")


@given(st.permutations(range(100)))
def test_each_request_is_taken_at_most_once_and_in_order_all_are(order: list[int]) -> None:
    session, coordinator = pair()
    sealed = [session.seal(METHOD, bytes([index]))[1] for index in range(100)]
    taken = []
    for index in [*order, *order, *range(100)]:
        try:
            taken.append(coordinator.take(METHOD, sealed[index]).payload[0])
        except Unproven:
            continue
    assert len(taken) == len(set(taken))
    behind = [index for place, index in enumerate(order) if max(order[: place + 1]) - index < sessions.WINDOW]
    assert set(taken) == set(behind)


def test_a_request_that_was_held_back_is_late_and_its_sender_opens_another_session() -> None:
    clock = Clock()
    session, coordinator = pair(clock)
    _, held = session.seal(METHOD, b"resize")
    clock.now += sessions.LATEST_SECONDS + 1
    with pytest.raises(UnknownSession):
        coordinator.take(METHOD, held)
    _, prompt = session.seal(METHOD, b"resize")
    assert coordinator.take(METHOD, prompt).payload == b"resize", "a session itself may become old"


def test_what_one_coordinator_was_sent_is_of_no_use_with_another_or_with_itself_started_again() -> None:
    clock = Clock()
    session, _ = pair(clock)
    _, data = session.seal(METHOD, b"resize")
    with pytest.raises(UnknownSession):
        CoordinatorSessions("digits", TOKEN, clock).take(METHOD, data)


def test_who_opens_sessions_without_end_drives_out_nobody_who_uses_one() -> None:
    session, coordinator = pair()
    coordinator.take(METHOD, session.seal(METHOD, b"")[1])
    for _ in range(3 * sessions.MOST_UNPROVEN):
        coordinator.open(CallerSession.draw())
    assert coordinator.take(METHOD, session.seal(METHOD, b"on")[1]).payload == b"on"
    assert len(coordinator._unproven) == sessions.MOST_UNPROVEN


def test_a_session_that_was_forgotten_is_unknown_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_MOST_PROVEN", 3)
    clock = Clock()
    session, coordinator = pair(clock)
    _, data = session.seal(METHOD, b"")
    coordinator.take(METHOD, data)
    for _ in range(3):
        coordinator.take(METHOD, caller(coordinator, clock).seal(METHOD, b"")[1])
    with pytest.raises(UnknownSession):
        coordinator.take(METHOD, data)
