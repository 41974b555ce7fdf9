"""From an error to one line on stderr and an exit code: 0 done, 1 failed, 2 wrong usage or bad input, 3 not reachable.

A traceback is printed with `--debug` only.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence

import click
import typer

from elastic_runtime.plain_line import LONGEST_ERROR, plain_line

DONE = 0
FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130


def run(
    application: typer.Typer,
    program: str,
    codes: Mapping[type[BaseException], int],
    arguments: Sequence[str] | None = None,
) -> int:
    """Run a command line to its exit code; never raises.

    Args:
        application: the program.
        program: its name, which begins every line about an error.
        codes: exit codes of expected errors; the first class that fits decides.
        arguments: what was typed after the name; `sys.argv[1:]` if None.
    """
    typed = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result = typer.main.get_command(application).main(typed, prog_name=program, standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        return _ended(program, error, codes, "--debug" in typed)
    finally:
        _give_up_closed_streams()
    return result if isinstance(result, int) else DONE


def _give_up_closed_streams() -> None:
    """Give up what nobody reads any more; the interpreter would fail on it as it ends, with a code of its own."""
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except (OSError, ValueError):
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123  (open to the end)


def _ended(program: str, error: BaseException, codes: Mapping[type[BaseException], int], debug: bool) -> int:
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, BrokenPipeError):
        # The reader, such as `head`, has seen enough; nothing more may be tried when the interpreter ends.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  (open to the end)
        return DONE
    if debug:
        traceback.print_exception(error)
    if isinstance(error, (click.exceptions.Abort, KeyboardInterrupt)):
        _say(program, "interrupted")
        return INTERRUPTED
    code, line = _told(error, codes)
    _say(program, line)
    return code


def _told(error: BaseException, codes: Mapping[type[BaseException], int]) -> tuple[int, str]:
    """The exit code and the line of an error."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # the help has been shown
        return BAD_INPUT, "nothing was asked for; name a command, or what to run"
    if isinstance(error, click.ClickException):
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else ""
        return BAD_INPUT, error.format_message() + (f" (see `{where} --help`)" if where else "")
    code = next((code for kind, code in codes.items() if isinstance(error, kind)), None)
    if code is not None:
        return code, str(error)
    if isinstance(error, OSError) and error.strerror:
        what = "standard output or a file" if error.filename is None else str(error.filename)
        return FAILED, f"{what}: {error.strerror}; free space, mend the permissions, or name another one"
    return FAILED, f"{type(error).__name__}: {error} (try --debug)"


def _say(program: str, message: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # nobody can be told that nobody can be told
        print(f"{program}: {plain_line(message, LONGEST_ERROR)}", file=sys.stderr, flush=True)
