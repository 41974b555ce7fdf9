"""Looks at a learner: patience with one that is away, and an end of it."""

import pytest

from foundation.output import Form, watch
from foundation.tables import Column, FittedTable
from global_learner.errors import LearnerError, Unreachable
from global_learner.policyctl.options import AWAY_SECONDS, polls

AWAY = Unreachable("no learner answers at north:1")


class Looks:
    """Gives one answer after the other, and is interrupted then; time passes with every sleep."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = list(answers)
        self.now = 0.0

    def __call__(self) -> dict[str, int]:
        if not self.answers:
            raise KeyboardInterrupt
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"step": answer}

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def watch(self, form: Form = Form.TABLE, every_seconds: float = 2.0) -> None:
        def table(facts: dict[str, int]) -> FittedTable:
            return FittedTable("", [Column("step")], [(str(facts["step"]),)])

        watch(polls(self, every_seconds, lambda: self.now, self.sleep), table, form)


def test_there_is_a_pause_between_two_looks_and_an_interruption_is_no_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen = Looks(1, 2, 2)
    seen.watch(Form.CSV)
    assert (capsys.readouterr(), seen.now) == (("step\n1\n2\n2\n", ""), 6.0)


def test_a_learner_that_is_away_for_a_while_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    Looks(1, AWAY, AWAY, 2).watch(Form.JSON)
    said = capsys.readouterr()
    assert said.out == '{"step": 1}\n{"step": 2}\n'
    assert said.err == "no learner answers; waiting for one, for 60 s at most\na learner answers again\n"


def test_one_that_does_not_come_back_is_given_up() -> None:
    seen = Looks(1, *[AWAY] * 1000)
    with pytest.raises(Unreachable, match="no learner has answered for 60 s; no learner answers at north:1"):
        seen.watch(every_seconds=7.0)
    assert AWAY_SECONDS <= seen.now - 7.0 < AWAY_SECONDS + 2.0


def test_one_that_never_answered_is_not_waited_for_and_a_refusal_ends_it() -> None:
    seen = Looks(AWAY, 1)
    with pytest.raises(Unreachable):
        seen.watch()
    assert seen.now == 0.0
    with pytest.raises(LearnerError, match="no such rollout"):
        Looks(1, LearnerError("no such rollout")).watch()
