"""A worker's place in its job: what ends it, and that nothing stays open where it does not come to be."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from elastic_runtime.errors import BadInput, CoordinatorUnreachable, ElasticError
from elastic_runtime.member.environment import MemberEnvironment
from elastic_runtime.model.layout import TensorSpec, build_layout
from elastic_runtime.model.optimizers import SGD
from elastic_runtime.model.training import Training
from elastic_runtime.protocol.plan import JobPhase, Plan, TaskRole, View
from elastic_runtime.worker.membership import PATIENCE_SECONDS, Membership

LAYOUT = build_layout([TensorSpec("weight", (4,), "float32")], [])
TRAINING = Training(optimizer=SGD(lr=0.1), samples=8, global_batch=4, epochs=1)
VIEW = View(1, 1, JobPhase.RUNNING, 0, "step-0", Plan(("worker-0",), ("ps-0",)))


class Surroundings:
    """An environment, a data plane and a line to the coordinator, none of them real."""

    task = "worker-0"
    grace_seconds = 1.0
    address = "{}"

    def __init__(self, *, opens: bool = True, registers: bool = True) -> None:
        self.opens, self.registers = opens, registers
        self.closed = 0
        self.expelled = threading.Event()
        self.failure: ElasticError | None = None
        self.coordinator_silent_seconds = 0.0
        self.reported: dict[str, Any] = {}

    def open_endpoint(self) -> "Surroundings":
        return self

    def open_link(self, role: TaskRole, clock: Callable[[], float]) -> "Surroundings":
        assert role is TaskRole.WORKER
        assert clock() >= 0.0
        if not self.opens:
            raise BadInput("no such folder")
        return self

    def register(self, *_: object) -> None:
        if not self.registers:
            raise BadInput("refused")

    def unreachable(self, seconds: float) -> CoordinatorUnreachable:
        return CoordinatorUnreachable(f"silent for {seconds:.0f} s")

    def report(self, **changes: Any) -> None:
        self.reported |= changes

    def flush(self, seconds: float) -> None:
        assert seconds > 0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    made = Surroundings()
    monkeypatch.setattr(MemberEnvironment, "read", lambda _: made)
    return made


def member() -> Membership:
    return Membership({}, LAYOUT, TRAINING, lambda: 0.0)


@pytest.mark.parametrize(("attribute", "closed"), [("opens", 1), ("registers", 2)])
def test_what_was_opened_is_closed_where_a_worker_is_not_let_in(
    around: Surroundings, attribute: str, closed: int
) -> None:
    setattr(around, attribute, False)
    with pytest.raises(BadInput):
        member()
    assert around.closed == closed


def test_closing_twice_closes_once(around: Surroundings) -> None:
    one = member()
    one.close()
    one.close()
    assert around.closed == 2  # the endpoint and the link


def test_who_was_taken_for_dead_does_not_wait_for_a_view(around: Surroundings) -> None:
    one = member()
    around.expelled.set()
    with pytest.raises(ElasticError, match="took worker-0 for dead"):
        one.view()


def test_why_the_line_was_lost_is_said_rather_than_that_it_was(around: Surroundings) -> None:
    one = member()
    around.failure = BadInput("wrong token")
    around.expelled.set()
    with pytest.raises(BadInput, match="wrong token"):
        one.check()


def test_patience_ends_only_where_the_coordinator_is_silent_too(around: Surroundings) -> None:
    one = member()
    one.check(2 * PATIENCE_SECONDS)
    around.coordinator_silent_seconds = PATIENCE_SECONDS
    one.check(PATIENCE_SECONDS - 1.0)
    with pytest.raises(CoordinatorUnreachable, match=f"silent for {PATIENCE_SECONDS:.0f} s"):
        one.check(PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("view", "goes"),
    [
        (VIEW, False),
        (replace(VIEW, leaving=("worker-1",)), False),
        (replace(VIEW, leaving=("worker-0",)), True),
        (replace(VIEW, phase=JobPhase.FINISHED), True),
        (replace(VIEW, phase=JobPhase.SUSPENDED), True),
    ],
)
def test_when_a_worker_is_let_go(around: Surroundings, view: View, goes: bool) -> None:
    assert member().is_let_go(view) is goes


def test_leaving_is_told_before_it_counts(around: Surroundings) -> None:
    one = member()
    assert not one.left
    one.leave()
    assert one.left
    assert around.reported == {"left": True}
