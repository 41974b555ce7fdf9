from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import click
import pytest
import typer

from foundation.command_line import run, with_option_groups
from foundation.errors import BAD_INPUT, DONE


@dataclass(frozen=True)
class Size:
    width: Annotated[int, typer.Option("--width", min=1, help="In metres.")]
    height: Annotated[int, typer.Option("--height", envvar="FEDL2_TEST_HEIGHT")] = 2


@dataclass(frozen=True)
class Paint:
    colour: Annotated[str, typer.Option("--colour")] = "red"


def application(command: Callable[..., None]) -> typer.Typer:
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return app


def built(command: Callable[..., None]) -> click.Command:
    return typer.main.get_command(application(command))


@pytest.fixture
def given() -> list[tuple[Any, ...]]:
    return []


@pytest.fixture
def build(given: list[tuple[Any, ...]]) -> typer.Typer:
    @with_option_groups
    def command(
        name: Annotated[str, typer.Argument()],
        size: Size,
        times: Annotated[int, typer.Option("--times")] = 1,
        *,
        paint: Paint,
    ) -> None:
        """Build something."""
        given.append((name, size, times, paint))

    return application(command)


def test_a_command_is_given_each_group_whole(build: typer.Typer, given: list[tuple[Any, ...]]) -> None:
    assert run(build, "build", ["hut", "--colour", "blue", "--width", "3", "--times", "4"]) == DONE
    assert given == [("hut", Size(3, 2), 4, Paint("blue"))]


def test_options_stand_where_the_group_stood_and_keep_what_is_said_of_them(build: typer.Typer) -> None:
    command = typer.main.get_command(build)
    assert [parameter.name for parameter in command.params] == ["name", "width", "height", "times", "colour"]
    assert command.help == "Build something."
    width = command.params[1]
    assert isinstance(width, click.Option)
    assert (width.help, width.required) == ("In metres.", True)


def test_a_fields_environment_variable_and_range_count(
    build: typer.Typer,
    given: list[tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FEDL2_TEST_HEIGHT", "7")
    assert run(build, "build", ["hut", "--width", "1"]) == DONE
    assert given[0][1] == Size(1, 7)
    assert run(build, "build", ["hut", "--width", "0"]) == BAD_INPUT
    assert run(build, "build", ["hut"]) == BAD_INPUT
    assert "--width" in capsys.readouterr().err.splitlines()[-1]
    assert len(given) == 1


def test_a_command_without_a_group_is_a_slip() -> None:
    def command(name: str) -> None: ...

    with pytest.raises(TypeError, match="no parameter's type is a dataclass"):
        with_option_groups(command)


def test_two_options_of_one_name_are_a_slip() -> None:
    def command(paint: Paint, colour: Annotated[str, typer.Option("--color")] = "red") -> None: ...

    with pytest.raises(ValueError, match="colour"):
        built(with_option_groups(command))
