"""What has to be told to a coordinator is told once it is back, in order."""

import threading
from collections.abc import Callable

import pytest

from elastic_runtime.errors import BadInput, CoordinatorUnreachable, ElasticError
from elastic_runtime.launcher.coordinator_connection import CoordinatorReporter

GONE = CoordinatorUnreachable("away")


class Answers:
    """Gives one answer after the other, the last one for ever."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked = 0

    def __call__(self) -> object:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def reporter() -> CoordinatorReporter:
    return CoordinatorReporter()


def posted(reporter: CoordinatorReporter, send: Callable[[], object]) -> list[ElasticError]:
    """Post, and wait for what is posted behind it."""
    refused: list[ElasticError] = []
    sent = threading.Event()
    reporter.post(send, refused.append)
    reporter.post(sent.set, refused.append)
    assert sent.wait(100)
    return refused


def test_what_is_told_is_told_in_order_and_until_it_is_taken(reporter: CoordinatorReporter) -> None:
    answers = Answers(GONE, GONE, "taken")
    assert posted(reporter, answers) == []
    assert answers.asked == 3
    reporter.close()
    assert reporter.empty


def test_what_is_refused_is_not_told_again(reporter: CoordinatorReporter) -> None:
    answers = Answers(BadInput("no"))
    assert [str(error) for error in posted(reporter, answers)] == ["no"]
    assert answers.asked == 1
    reporter.close()


def test_it_can_be_closed_while_nobody_answers(reporter: CoordinatorReporter) -> None:
    answers = Answers(GONE)
    reporter.post(answers, lambda error: None)
    reporter.close()
    assert not reporter._thread.is_alive()
