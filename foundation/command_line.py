"""The boundary between a command line and everything below it: one clear line on stderr, and an exit code.

All of fedl2's programs run their typer application through `run`, so that every one of them fails alike: 0 done, 1
failed, 2 wrong usage or bad input, 3 server not reachable. A traceback is printed with `--debug` only. Commands that
share options name them once, in a frozen dataclass (`with_option_groups`).
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import errno
import functools
import inspect
import math
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, get_type_hints

import click
import typer
from typer.core import TyperGroup, TyperOption

from foundation.errors import BAD_INPUT, DONE, FAILED, INTERRUPTED, MISNAMED, ExpectedError
from foundation.program_life import missing, work
from foundation.text import LONGEST_ERROR_CHARACTERS, plain_line

VERSION_OPTION = "--version"
"""Every program takes it, where its name stands alone."""
HELP_OPTIONS = ["--help", "-h"]
"""Every program and every command of it takes them."""
OUT_OPTION = "--out"
"""What a command writes: never what a word that stands alone was meant for."""
_FOLLOW_OPTION = "--follow"
"""Commands that print what was written take it, and go on as there is more."""
WATCH_OPTION = "--watch"
"""Commands that print how things are take it, and show them again and again."""
_DEBUG = "--debug"
_DISTRIBUTION = "fedl2"
_NO_NUMBER = re.compile(r"'(?P<typed>.*)' is not a valid (?P<kind>float|integer)( range)?\.", re.DOTALL)
"""What click says of a value that is no number."""
_NUMBER_INSIDE = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?")


def run(
    application: typer.Typer,
    program: str,
    arguments: Sequence[str] | None = None,
) -> int:
    """Run a command line to its exit code; prints an error as one line on stderr and never raises it.

    Args:
        arguments: what was typed after the name; `sys.argv[1:]` if None.
    """
    typed = list(sys.argv[1:] if arguments is None else arguments)
    _open_missing_streams()
    try:
        with work():
            result = _built(application, program).main(typed, prog_name=program, standalone_mode=False)
            sys.stdout.flush()
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        return _ended(program, error, typed)
    if result == INTERRUPTED:  # typer's own answer to Ctrl-C
        _say(program, "interrupted")
    return result if isinstance(result, int) else DONE


@functools.cache
def _built(application: typer.Typer, program: str) -> click.Command:
    """The program's commands, built once: that takes longer than most of them, where a process runs many."""
    command = command_of(application)
    command.params.append(_version_option(program))
    # Contexts of its commands take them over.
    command.context_settings = {**command.context_settings, "help_option_names": HELP_OPTIONS}
    return command


def command_of(application: typer.Typer) -> click.Command:
    """A program's commands: each takes `--debug`, and no option NaN or infinity for a number, or nothing for a path."""
    return _guarded(typer.main.get_command(application))


class HabitGroup(TyperGroup):
    """A group of commands that knows what they are called elsewhere.

    Attributes:
        habits: the word that somebody types, and the whole command that does it here. `NAME --watch` is one where
            the command called NAME shows nothing again and again, and another does.
    """

    habits: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As typer's, but a word of a habit is answered with the command, which is never run for it."""
        word = args[0] if args else ""
        if word in self.habits and word not in self.commands:
            ctx.fail(f"No such command {word!r}. Did you mean `{self.habits[word]}`?")
        return super().resolve_command(ctx, args)


def group_with_habits(habits: Mapping[str, str]) -> type[HabitGroup]:
    """The kind of group that knows these habits, for `typer.Typer(cls=...)`."""
    return type("Group", (HabitGroup,), {"habits": habits})


def _ended(program: str, error: BaseException, typed: Sequence[str]) -> int:
    """Say why a command ended, if that wants saying; the exit code."""
    if isinstance(error, click.exceptions.Exit):
        return _flushed(program, error.exit_code)
    if isinstance(error, (click.exceptions.Abort, KeyboardInterrupt)):
        _say(program, "interrupted")
        return INTERRUPTED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # the help has been shown
        where = f" (see `{error.ctx.command_path} --help`)" if error.ctx else ""
        _say(program, f"nothing was asked for; name a command{where}")
        return BAD_INPUT
    if isinstance(error, click.ClickException):
        usage = f" (see `{error.ctx.command_path} --help`)" if isinstance(error, click.UsageError) and error.ctx else ""
        _say(program, _of_watch(error) or (_of_number(error) or error.format_message()) + _meant(error, typed) + usage)
        return BAD_INPUT
    if isinstance(error, (BrokenPipeError, SystemExit)):
        # The reader, such as `head`, has seen enough; there is nobody left to tell. click and rich exit by themselves.
        _drop_output()
        return DONE if _is_broken_pipe(error) or _is_broken_pipe(error.__context__) else FAILED
    if _DEBUG in typed:
        traceback.print_exception(error)
    lacks = missing(error, program) if isinstance(error, ModuleNotFoundError) else None
    _say(program, lacks or _line_of(error))
    _drop_output()
    return BAD_INPUT if lacks else exit_code(error)


def _meant(error: click.ClickException, typed: Sequence[str]) -> str:
    """Where an option is missing and a word stands alone, that the one may be of the other; else nothing."""
    if not isinstance(error, click.MissingParameter) or error.ctx is None or not isinstance(error.param, click.Option):
        return ""
    names: list[str] = []
    context = error.ctx
    while context.parent is not None:
        names.insert(0, context.info_name or "")
        context = context.parent
    words = iter(typed)
    if not all(name in words for name in names):  # reads on to each of them
        return ""
    with contextlib.suppress(click.UsageError):
        _, loose, _ = error.ctx.command.make_parser(error.ctx).parse_args(list(words))
        if loose:
            option = error.param.opts[0]
            return f" Did you mean `{option} {loose[0]}`?" if option != OUT_OPTION else f" {loose[0]!r} has no option."
    return ""


def _of_number(error: click.ClickException) -> str:
    """What to write where a number was wanted and something else was typed; empty for other errors."""
    found = _NO_NUMBER.fullmatch(error.message) if isinstance(error, click.BadParameter) else None
    if found is None or not isinstance(error, click.BadParameter):
        return ""
    typed, whole = found["typed"], found["kind"].startswith("integer")
    inside = _NUMBER_INSIDE.findall(typed)
    number = inside[0].replace(",", "") if len(inside) == 1 else ""
    what = "whole number" if whole else "number"
    example = f", such as {number}" if number and not (whole and "." in number) else ""
    hint = error.param.get_error_hint(error.ctx) if error.param is not None and error.ctx is not None else "a value"
    return f"{hint}: {plain_line(typed)!r} is no {what}; write a {what} alone{example}"


def _of_watch(error: click.ClickException) -> str:
    """What to use where a command does not take `--watch`; empty for other errors, and where nothing takes it."""
    if not isinstance(error, click.NoSuchOption) or error.option_name != WATCH_OPTION or error.ctx is None:
        return ""
    context = error.ctx
    root = context.find_root()
    name = context.command_path.removeprefix(f"{root.command_path} ")
    if isinstance(root.command, HabitGroup) and (meant := root.command.habits.get(f"{name} {WATCH_OPTION}")):
        return f"{name} takes no {WATCH_OPTION}; use `{meant}`"
    if _takes(context.command, _FOLLOW_OPTION):
        return f"{name} takes no {WATCH_OPTION}; use `{context.command_path} {_FOLLOW_OPTION}`"
    takers = _takers(root.command, root.command_path, WATCH_OPTION)
    group = f"{context.command_path.rpartition(' ')[0]} "
    near = [taker for taker in takers if taker.startswith(group)] or takers
    used = ", ".join(f"`{taker} {WATCH_OPTION}`" for taker in near)
    return f"{name} takes no {WATCH_OPTION}; those that do: {used}" if near else ""


def _takers(command: click.Command, path: str, option: str) -> list[str]:
    if isinstance(command, click.Group):
        return [
            taker
            for name, child in command.commands.items()
            if not child.hidden
            for taker in _takers(child, f"{path} {name}", option)
        ]
    return [path] if _takes(command, option) else []


def _takes(command: click.Command, option: str) -> bool:
    return any(option in parameter.opts for parameter in command.params)


def _line_of(error: BaseException) -> str:
    if isinstance(error, ExpectedError):
        return str(error)
    if isinstance(error, UnicodeEncodeError):
        return "something that was typed is no UTF-8 text; type it anew"
    if isinstance(error, OSError) and error.strerror:
        what = "standard output or a file" if error.filename is None else plain_line(str(error.filename), 200)
        return f"{what}: cannot be read or written ({error.strerror}); free space, mend the disk, or name another one"
    return f"{type(error).__name__}: {error} (try --debug)"


def _is_broken_pipe(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def _flushed(program: str, code: int) -> int:
    """A command that ended early, after --help say: its output must be written all the same."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _drop_output()
        if not _is_broken_pipe(error):
            _say(program, _line_of(error))
            return FAILED
    return code


def _open_missing_streams() -> None:
    """Whoever closes a program's output wants none, rather than an error where it is first looked at."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123  (open to the end)


def _drop_output() -> None:
    """What could not be written must not be tried again, with a traceback, when the interpreter ends."""
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except (OSError, ValueError):
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123  (open to the end)


def _version_option(program: str) -> click.Option:
    """The option `--version` of a program; of a program with commands it stands before their names."""

    def show(context: click.Context, _parameter: click.Parameter, given: bool) -> None:
        if given and not context.resilient_parsing:
            # Takes longer to load than the rest of what a refusal needs.
            from importlib.metadata import version  # noqa: PLC0415

            click.echo(f"{program} {version(_DISTRIBUTION)}")
            context.exit(DONE)

    return TyperOption(
        param_decls=[VERSION_OPTION],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Show the version and exit.",
    )


def _guarded(command: click.Command) -> click.Command:
    if isinstance(command, click.Group):
        for child in command.commands.values():
            _guarded(child)
    else:  # it does nothing with it: `_ended` looks for the flag
        help_text = "Print the traceback of an error."
        command.params.append(TyperOption(param_decls=[_DEBUG], is_flag=True, expose_value=False, help=help_text))
    for parameter in command.params:
        if isinstance(parameter.type, (click.types.FloatParamType, click.Path)):
            parameter.type = _checked(parameter.type)
    return command


def _checked(kind: click.ParamType) -> click.ParamType:
    checked = copy.copy(kind)

    def convert(value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            kind.fail("an empty value; leave the option out, or name something.", param, ctx)
        converted = kind.convert(value, param, ctx)
        # NaN is neither below the least nor above the largest, and passes every range.
        if isinstance(converted, float) and not math.isfinite(converted):
            kind.fail(f"{value} is not a finite number.", param, ctx)
        return converted

    checked.convert = convert  # type: ignore[method-assign]  # of this one copy
    return checked


def exit_code(error: BaseException) -> int:
    """The exit code that stands for an error."""
    if isinstance(error, ExpectedError):
        return error.exit_code
    misnamed = isinstance(error, OSError) and error.filename is not None and error.errno in MISNAMED
    return BAD_INPUT if misnamed or isinstance(error, UnicodeEncodeError) else FAILED


def _say(program: str, message: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # nobody can be told that nobody can be told
        print(f"{program}: {plain_line(message, LONGEST_ERROR_CHARACTERS)}", file=sys.stderr, flush=True)


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option for every field of a dataclass, in the place of the parameter that has its type.

    The command is given the dataclass with what was typed; typer sees, and calls, a command of single options. Raises
    TypeError if no parameter's type is a dataclass; ValueError if an option's name is a parameter's too.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if isinstance(kind, type) and dataclasses.is_dataclass(kind)}
    if not groups:
        raise TypeError(f"{command.__name__}: no parameter's type is a dataclass of options")
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _options(groups[name])
        else:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[name]))

    @functools.wraps(command)
    def run(**values: Any) -> None:
        gathered = {
            name: group(**{item.name: values.pop(item.name) for item in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        command(**gathered, **values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # where typer looks
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _options(group: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for item in dataclasses.fields(group):
        default = inspect.Parameter.empty if item.default is dataclasses.MISSING else item.default
        yield inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[item.name])
