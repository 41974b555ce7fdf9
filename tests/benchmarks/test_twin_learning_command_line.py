"""What the benchmarks of twin learning take on their command lines is the same in all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.twin_learning import __main__ as learning
from benchmarks.twin_learning import limits, together
from benchmarks.twin_learning.command_line import SETTINGS, add_judge, add_training, parser_of
from foundation.errors import BAD_INPUT


def test_common_options_and_what_they_are_unless_given() -> None:
    parser = parser_of("it", "what it does")
    add_judge(parser)
    add_training(parser)
    assert vars(parser.parse_args(["--data", "folder"])) == {
        "output": "json",
        "data": Path("folder"),
        "settings": list(SETTINGS),
        "judge": "validation",
        "seeds": 1,
        "pairs": 4,
        "window_jobs": 500,
        "learning_rate": 0.3,
    }
    assert parser_of("it", None, ["mix-known"]).parse_args(["--data", "folder"]).settings == ["mix-known"]


@pytest.mark.parametrize(
    ("program", "main", "wrong"),
    [
        (learning.PROGRAM, learning.main, ["--pairs", "0"]),
        (limits.PROGRAM, limits.main, ["--draws", "0"]),
        (together.PROGRAM, together.main, ["--pairs", "0"]),
    ],
)
def test_a_refusal_is_one_line_of_the_program_that_was_called(
    program: str,
    main: Callable[[list[str]], int],
    wrong: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--data", str(tmp_path), *wrong]) == BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{program}: ")
    for option in ("--data", "--settings", "-o"):
        with pytest.raises(SystemExit):
            main([option])
        assert f"argument {option}" in capsys.readouterr().err
