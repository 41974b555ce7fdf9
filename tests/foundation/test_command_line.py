from importlib.metadata import version
from typing import Annotated

import pytest
import typer

from foundation import command_line, errors
from foundation.errors import ExpectedError


class _Unreachable(ExpectedError):
    exit_code = errors.UNREACHABLE


class BadInput(ExpectedError):
    exit_code = errors.BAD_INPUT


def _program(error: BaseException | None = None) -> typer.Typer:
    app = typer.Typer()

    @app.command()
    def work(number: int = 0) -> None:
        if error is not None:
            raise error

    return app


def _run(error: BaseException | None, *words: str) -> int:
    return command_line.run(_program(error), "prog", words)


def test_success_is_silent_and_zero(capsys) -> None:
    assert _run(None) == 0
    assert capsys.readouterr() == ("", "")


def test_each_kind_of_error_has_its_exit_code_and_one_line(capsys) -> None:
    for error, code in (
        (BadInput("a.csv, line 3: what\n  to do"), 2),
        (_Unreachable("nobody there"), 3),
        (ExpectedError("it failed"), 1),
    ):
        assert _run(error) == code
        out, err = capsys.readouterr()
        assert out == ""
        assert err == f"prog: {' '.join(str(error).split())}\n"


def test_an_unexpected_error_names_its_kind_and_fails(capsys) -> None:
    assert _run(ZeroDivisionError("oh")) == 1
    assert capsys.readouterr().err == "prog: ZeroDivisionError: oh (try --debug)\n"


def test_a_traceback_is_printed_only_with_debug(capsys) -> None:
    assert _run(BadInput("no"), "--debug") == 2
    assert "Traceback" in capsys.readouterr().err
    assert _run(BadInput("no")) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_wrong_usage_is_bad_input_in_one_line(capsys) -> None:
    for words in (["--nonsense"], ["--number", "many"], ["superfluous"]):
        assert _run(None, *words) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_word_that_stands_alone_is_offered_to_the_option_that_is_missing(capsys) -> None:
    app = typer.Typer()
    group = typer.Typer()
    app.add_typer(group, name="jobs")

    @app.command()
    def replay(workload: str = typer.Option(...), nodes: int = 0) -> None:
        raise AssertionError

    @group.command()
    def keep(out: str = typer.Option(...)) -> None:
        raise AssertionError

    for words, said in (
        (
            ["replay", "--nodes", "4", "week.txt"],
            "'--workload'. Did you mean `--workload week.txt`? (see `prog replay ",
        ),
        (["replay", "--nodes", "4"], "'--workload'. (see"),
        (["jobs", "keep", "a.csv"], "'--out'. 'a.csv' has no option. (see"),
        (["replay", "--nodes"], "requires an argument"),
    ):
        assert command_line.run(app, "prog", words) == 2
        reported = capsys.readouterr().err
        assert said in reported
        assert len(reported.splitlines()) == 1


def test_an_interrupt_ends_with_130_and_a_word(capsys) -> None:
    assert _run(KeyboardInterrupt()) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_subclass_ends_with_its_parents_code_unless_it_says_its_own(capsys) -> None:
    class Worse(BadInput):
        pass

    class Absent(BadInput):
        exit_code = errors.UNREACHABLE

    assert (_run(Worse("no")), _run(Absent("no"))) == (2, 3)


def test_a_program_without_a_command_says_what_is_missing(capsys) -> None:
    app = typer.Typer(no_args_is_help=True)
    app.command("one")(lambda: None)
    app.command("two")(lambda: None)
    assert command_line.run(app, "prog", []) == 2
    assert capsys.readouterr().err == "prog: nothing was asked for; name a command (see `prog --help`)\n"


def test_a_program_says_its_version(capsys) -> None:
    assert _run(None, "--version") == 0
    assert capsys.readouterr() == (f"prog {version('fedl2')}\n", "")
    assert _run(BadInput("no"), "--number", "3", "--version") == 0  # and does nothing else
    capsys.readouterr()
    assert _run(None, "--help") == 0
    said = capsys.readouterr().out
    assert _run(None, "-h") == 0
    assert capsys.readouterr().out == said
    assert "--version" in said


def watched_app() -> typer.Typer:
    app = typer.Typer(cls=command_line.group_with_habits({"page --watch": "prog list --watch"}))
    jobs = typer.Typer()
    for group in (app, jobs):

        @group.command("list")
        def listed(watch: bool = False) -> None:
            del watch

        @group.command("logs")
        def logs(follow: bool = False) -> None:
            del follow

        group.command("page")(lambda: None)
    app.add_typer(jobs, name="job")
    app.command("other")(lambda: None)
    return app


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("page",), "page takes no --watch; use `prog list --watch`"),
        (("logs",), "logs takes no --watch; use `prog logs --follow`"),
        (("job", "logs"), "job logs takes no --watch; use `prog job logs --follow`"),
        (("job", "page"), "job page takes no --watch; those that do: `prog job list --watch`"),
        (("other",), "other takes no --watch; those that do: `prog list --watch`, `prog job list --watch`"),
    ],
)
def test_who_cannot_watch_a_command_is_told_what_can_be_watched(capsys, words: tuple[str, ...], says: str) -> None:
    app = watched_app()
    assert command_line.run(app, "prog", [*words, "--watch"]) == 2
    assert capsys.readouterr().err == f"prog: {says}\n"
    assert command_line.run(app, "prog", ["job", "list", "--watch"]) == 0


def test_where_nothing_can_be_watched_the_option_is_unknown(capsys) -> None:
    assert _run(None, "--number", "3", "--watch") == 2
    assert capsys.readouterr().err == "prog: No such option: --watch (see `prog --help`)\n"


def test_a_word_of_another_program_is_answered_with_the_command_that_does_it_here(capsys) -> None:
    app = typer.Typer(cls=command_line.group_with_habits({"rm": "prog delete", "kept": "prog delete"}))
    for name in ("delete", "kept"):
        app.command(name)(lambda: None)
    assert command_line.run(app, "prog", ["rm", "x"]) == 2
    assert capsys.readouterr().err == "prog: No such command 'rm'. Did you mean `prog delete`? (see `prog --help`)\n"
    assert command_line.run(app, "prog", ["kept"]) == 0, "a command that is there is run"
    assert command_line.run(app, "prog", ["delte"]) == 2
    assert "delete" in capsys.readouterr().err, "slips of the pen are answered as ever"


@pytest.mark.parametrize(
    ("option", "typed", "says"),
    [
        ("--price", "$2.50", "'--price': '$2.50' is no number; write a number alone, such as 2.50"),
        ("--price", "1,250.75 EUR", "'--price': '1,250.75 EUR' is no number; write a number alone, such as 1250.75"),
        ("--price", "dear", "'--price': 'dear' is no number; write a number alone"),
        ("--price", "2..3..4", "'--price': '2..3..4' is no number; write a number alone"),
        ("--number", "16 nodes", "'--number': '16 nodes' is no whole number; write a whole number alone, such as 16"),
        ("--number", "2.5", "'--number': '2.5' is no whole number; write a whole number alone"),
    ],
)
def test_what_is_no_number_is_answered_with_how_to_write_it(option: str, typed: str, says: str, capsys) -> None:
    app = typer.Typer()

    @app.command()
    def work(
        number: Annotated[int, typer.Option(min=0)] = 0, price: Annotated[float, typer.Option(min=0.0)] = 0.0
    ) -> None:
        raise AssertionError(number, price)

    assert command_line.run(app, "prog", (option, typed)) == 2
    assert capsys.readouterr().err == f"prog: {says} (see `prog --help`)\n"
