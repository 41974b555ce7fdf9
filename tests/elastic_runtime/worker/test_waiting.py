"""A worker that waits asks more and more rarely, names who owes it values, and does not wait for ever."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from elastic_runtime.errors import ElasticError, ProtocolError
from elastic_runtime.member.outbox import Outbox
from elastic_runtime.protocol.block_runs import Payload
from elastic_runtime.protocol.messages import Header, Outgoing, Pull, pack
from elastic_runtime.protocol.plan import JobPhase, Plan, View
from elastic_runtime.transport import Message
from elastic_runtime.worker.membership import Membership
from elastic_runtime.worker.parameter_servers import WorkerWaits

VIEW = View(1, 1, JobPhase.RUNNING, 0, "step-0", Plan(("worker-0",), ("ps-0",)))
WITHOUT_ONE = replace(VIEW, number=2, lost_servers=("ps-0",))
QUESTION = Pull(1, 1, ((0, 1),))


class World:
    """A worker of which one block is outstanding, with a clock that `receive` moves on by what it waits."""

    def __init__(
        self, messages_at: Iterable[float] = (), last_at: float = 1e9, dead_after_seconds: float = 1e9
    ) -> None:
        self.now = 0.0
        self.messages_at, self.last_at = sorted(messages_at), last_at
        self.dead_after_seconds = dead_after_seconds
        self.asked_at: list[float] = []
        self.suspects: list[tuple[float, tuple[str, ...]]] = []
        self.is_complete = False
        self.refuses = False
        self.lost_at = 1e9
        self.waiting = WorkerWaits(cast(Membership, self), cast(Outbox, self), self, self.handle)

    # ---- the member

    @property
    def endpoint(self) -> "World":
        return self

    @property
    def link(self) -> "World":
        return self

    def clock(self) -> float:
        return self.now

    def receive(self, seconds: float) -> Message | None:
        if self.messages_at and self.messages_at[0] <= self.now + seconds:
            self.now = max(self.now, self.messages_at.pop(0))
            return Message("ps-0", pack(QUESTION), (), 1)
        self.now += seconds
        return None

    def view(self) -> View:
        return VIEW if self.now < self.lost_at else WITHOUT_ONE

    def report(self, **changes: Any) -> None:
        self.suspects.append((self.now, changes["suspects"]))

    def check(self, waited_seconds: float) -> None:
        if waited_seconds >= self.dead_after_seconds:
            raise ElasticError("dead")

    # ---- the outbox

    def flush(self) -> bool:
        return False

    def send(self, messages: list[Outgoing]) -> None:
        self.asked_at += [self.now] * len(messages)

    # ---- what is expected

    def ask(self) -> list[Outgoing]:
        return [("ps-0", QUESTION)]

    def owners_waited_for(self) -> frozenset[str]:
        return frozenset({"ps-1", "ps-0"})

    def handle(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        assert (peer, header, list(payload)) == ("ps-0", QUESTION, [])
        if self.refuses:
            raise ProtocolError("no")
        self.is_complete = self.now >= self.last_at
        return []


def on(answer: bool) -> Callable[[View], bool]:
    return lambda view: answer and view in (VIEW, WITHOUT_ONE)


def test_questions_come_half_as_often_each_time_up_to_a_limit() -> None:
    world = World(messages_at=[30.0], last_at=30.0)
    assert world.waiting.until_complete(on(True))
    assert world.asked_at == pytest.approx([0.25, 0.75, 1.75, 3.75, 7.75, 12.75, 17.75, 22.75, 27.75], abs=0.3)


def test_a_message_makes_the_next_question_early_again() -> None:
    world = World(messages_at=[4.0, 6.0], last_at=6.0)
    assert world.waiting.until_complete(on(True))
    assert world.asked_at == pytest.approx([0.25, 0.75, 1.75, 3.75, 4.25, 4.75, 5.75], abs=0.3)


def test_once_a_server_is_lost_the_others_are_asked_at_once() -> None:
    world = World(messages_at=[30.0], last_at=30.0)
    world.lost_at = 10.0
    assert world.waiting.until_complete(on(True))
    assert [at for at in world.asked_at if 8.0 < at < 12.0] == pytest.approx([10.0, 10.25, 10.75, 11.75], abs=0.2)


def test_owners_are_named_after_a_while_and_cleared_by_what_ends_the_wait() -> None:
    world = World(messages_at=[5.12], last_at=5.12)
    assert world.waiting.until_complete(on(True))
    seconds, names = zip(*world.suspects, strict=True)
    assert seconds[0] == pytest.approx(5.0, abs=0.06)
    assert set(names[:-1]) == {("ps-0", "ps-1")}
    assert names[-1] == ()


def test_nobody_is_named_in_a_short_wait() -> None:
    world = World(messages_at=[4.9], last_at=4.9)
    assert world.waiting.until_complete(on(True))
    assert world.suspects == []


def test_a_view_that_leaves_nothing_to_wait_for_ends_it() -> None:
    world = World()
    assert not world.waiting.until_complete(on(False))
    assert world.asked_at == []


def test_a_member_that_is_none_any_more_stops_waiting() -> None:
    world = World(dead_after_seconds=300.0)
    with pytest.raises(ElasticError, match="dead"):
        world.waiting.until_complete(on(True))
    assert world.now == pytest.approx(300.0, abs=0.1)


def test_a_message_that_breaks_the_protocol_is_passed_over() -> None:
    world = World(messages_at=[1.0, 2.0, 8.0], last_at=8.0)
    world.refuses = True
    assert not world.waiting.until_complete(lambda _: world.now < 3.0)
    world.refuses = False
    assert world.waiting.until_complete(on(True))
