"""Watching: look after look in the form that was asked for, patience with a learner that is away, an end by Ctrl-C."""

import io
import json

import pytest
from rich.console import Console

from foundation.tables import Column, FittedTable
from global_learner.errors import LearnerError, Unreachable
from global_learner.policyctl.output import AWAY_SECONDS, Output, _what_fits, watch

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

    def watch(self, output: Output = Output.TABLE, every_seconds: float = 2.0) -> None:
        def table(facts: dict[str, int]) -> FittedTable:
            return FittedTable("", [Column("step")], [(str(facts["step"]),)])

        watch(self, table, output, every_seconds, lambda: self.now, self.sleep)


def test_each_look_is_printed_below_the_one_before_until_it_is_interrupted(capsys: pytest.CaptureFixture[str]) -> None:
    looks = Looks(1, 2, 2)
    looks.watch()
    said = capsys.readouterr()
    assert said.out.split() == ["step", "────", "1", "step", "────", "2", "step", "────", "2"]
    assert (said.err, looks.now) == ("", 6.0)


def test_json_is_a_line_a_look_and_yaml_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    Looks(1, 2).watch(Output.JSON)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [{"step": 1}, {"step": 2}]
    Looks(1, 2).watch(Output.YAML)
    assert capsys.readouterr().out == "step: 1\n---\nstep: 2\n"
    Looks(1, 2).watch(Output.CSV)
    assert capsys.readouterr().out == "step\n1\n2\n"


def test_a_learner_that_is_away_for_a_while_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    Looks(1, AWAY, AWAY, 2).watch(Output.JSON)
    said = capsys.readouterr()
    assert said.out == '{"step": 1}\n{"step": 2}\n'
    assert said.err == "no learner answers; waiting for one, for 60 s at most\na learner answers again\n"


def test_one_that_does_not_come_back_is_given_up() -> None:
    looks = Looks(1, *[AWAY] * 1000)
    with pytest.raises(Unreachable, match="no learner has answered for 60 s; no learner answers at north:1"):
        looks.watch(every_seconds=7.0)
    assert AWAY_SECONDS <= looks.now - 7.0 < AWAY_SECONDS + 2.0


def test_one_that_never_answered_is_not_waited_for_and_a_refusal_ends_it() -> None:
    looks = Looks(AWAY, 1)
    with pytest.raises(Unreachable):
        looks.watch()
    assert looks.now == 0.0
    with pytest.raises(LearnerError, match="no such rollout"):
        Looks(1, LearnerError("no such rollout")).watch()


def test_of_a_table_that_is_higher_than_the_screen_the_last_lines_are_shown() -> None:
    console = Console(width=40, height=8, file=io.StringIO(), force_terminal=False)
    table = FittedTable("", [Column("step")], [(str(step),) for step in range(30)])
    console.print(_what_fits(table, console))
    shown = console.file.getvalue().split("\n")
    assert shown[0] == f"… {30 + 2 - 6} lines above"
    assert [line.strip() for line in shown[1:] if line.strip()] == [str(step) for step in range(24, 30)]
    low = FittedTable("", [Column("step")], [("1",)])
    assert _what_fits(low, console) is low
