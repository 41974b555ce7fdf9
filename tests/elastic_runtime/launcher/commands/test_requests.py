"""Requests are carried through a coordinator's absence."""

import pytest

from elastic_runtime.control.messages import RequestOutcome
from elastic_runtime.errors import CoordinatorUnreachable, ElasticError
from elastic_runtime.launcher.commands.requests import RequestAborted, RequestPending, carry_through

GONE = CoordinatorUnreachable("away")
TAKEN = (RequestOutcome.QUEUED, "")
RUNNING = (RequestOutcome.RUNNING, "")
DONE = (RequestOutcome.DONE, "moved")


class Answers:
    """Gives one answer after the other, the last one for ever; time passes with every sleep."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.now = 0.0
        self.ended = ""

    def __call__(self) -> tuple[RequestOutcome, str]:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, tuple)
        return answer

    def carry(self, wait: bool = True) -> tuple[RequestOutcome, str]:
        return carry_through(self, wait, 60.0, lambda: self.ended, lambda: self.now, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_the_same_request_is_sent_until_it_has_ended() -> None:
    answers = Answers(TAKEN, RUNNING, RUNNING, DONE)
    assert answers.carry() == DONE
    assert answers.asked == 4


def test_without_waiting_it_is_enough_that_it_was_taken() -> None:
    answers = Answers(TAKEN, DONE)
    assert answers.carry(wait=False) == TAKEN


def test_a_coordinator_that_restarts_meanwhile_is_waited_for() -> None:
    assert Answers(TAKEN, GONE, GONE, DONE).carry() == DONE


def test_a_job_that_has_ended_meanwhile_is_not_waited_for() -> None:
    answers = Answers(TAKEN, RUNNING, GONE)
    answers.ended = "j has failed meanwhile: it broke"
    with pytest.raises(RequestAborted, match="j has failed meanwhile: it broke"):
        answers.carry()
    assert answers.now < 1.0
    finished = Answers(TAKEN, DONE)
    finished.ended = "j has finished meanwhile"
    assert finished.carry() == DONE, "what was answered counts"


def test_one_that_never_answered_is_not_waited_for() -> None:
    answers = Answers(GONE)
    with pytest.raises(CoordinatorUnreachable):
        answers.carry()
    assert answers.asked == 1


@pytest.mark.parametrize(("after", "error"), [(RUNNING, RequestPending), (GONE, CoordinatorUnreachable)])
def test_patience_ends(after: object, error: type[ElasticError]) -> None:
    answers = Answers(TAKEN, after)
    with pytest.raises(error):
        answers.carry()
    assert 60.0 <= answers.now < 62.0
