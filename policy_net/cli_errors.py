"""The boundary between a command line and everything below it: one clear line on stderr, and an exit code.

All of fedl2's programs run their typer application through `run`, so that every one of them fails alike: 0 done,
1 failed, 2 wrong usage or bad input, 3 server not reachable. A traceback is printed with `--debug` only.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import TypeVar

import click
import typer

from policy_net.errors import BadInput, PolicyNetError

DONE = 0
FAILED = 1
BAD_INPUT = 2
UNREACHABLE = 3
_INTERRUPTED = 130

Error = TypeVar("Error", bound=BaseException)


def run(
    application: typer.Typer,
    program: str,
    arguments: Sequence[str] | None = None,
    codes: Mapping[type[Error], int] | None = None,
) -> int:
    """Run a command line to its exit code; prints an error as one line on stderr and never raises it.

    Args:
        application: the program.
        program: its name, which begins every error line.
        arguments: what was typed after the name; `sys.argv[1:]` if None.
        codes: exit codes of the caller's own errors, asked before `BadInput`; anything else is 1.
    """
    typed = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result = typer.main.get_command(application).main(typed, prog_name=program, standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        _say(program, "interrupted")
        return _INTERRUPTED
    except click.ClickException as error:
        usage = f" (see `{error.ctx.command_path} --help`)" if isinstance(error, click.UsageError) and error.ctx else ""
        _say(program, error.format_message() + usage)
        return BAD_INPUT
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough; there is nobody left to tell.
        sys.stderr.close()
        return DONE
    except Exception as error:
        if "--debug" in typed:
            traceback.print_exc()
        _say(program, f"{error}" if _expected(error, codes) else f"{type(error).__name__}: {error} (try --debug)")
        return exit_code(error, codes)
    if result == _INTERRUPTED:  # typer's own answer to Ctrl-C
        _say(program, "interrupted")
    return result if isinstance(result, int) else DONE


def exit_code(error: BaseException, codes: Mapping[type[Error], int] | None = None) -> int:
    """The exit code that stands for an error."""
    for kind, code in (codes or {}).items():
        if isinstance(error, kind):
            return code
    return BAD_INPUT if isinstance(error, BadInput) else FAILED


def _expected(error: BaseException, codes: Mapping[type[Error], int] | None) -> bool:
    return isinstance(error, (PolicyNetError, *(codes or {})))


def _say(program: str, message: str) -> None:
    print(f"{program}: {' '.join(message.split())}", file=sys.stderr)
