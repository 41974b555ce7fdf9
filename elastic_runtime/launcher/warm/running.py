"""Running of a task in a process that was forked for it, as Python runs one."""

from __future__ import annotations

import atexit
import builtins
import importlib
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NoReturn

from foundation.program_life import end

MODULES = {
    "elastic_runtime.server": "elastic_runtime.server.__main__",
    "elastic_runtime.coordinator": "elastic_runtime.coordinator.__main__",
}
"""Modules of ours that can be run by `-m`, and where their `main` is."""


def runs_script(command: Sequence[str]) -> bool:
    """Whether a command line, without its interpreter, names a script."""
    return bool(command) and not command[0].startswith("-")


def can_run(command: Sequence[str]) -> bool:
    """Whether such a command line can be run in a forked process."""
    return runs_script(command) or (len(command) > 1 and command[0] == "-m" and command[1] in MODULES)


@dataclass(frozen=True, slots=True)
class ForkedTask:
    """Command line of a fork, without its interpreter."""

    python: str
    command: list[str]


def run(task: ForkedTask) -> None:
    """Run the command of a fork; nothing comes after it but the interpreter's own end.

    Raises:
        SystemExit: as it ends.
        BaseException: what a script does not catch.
    """
    sys.orig_argv[:] = [task.python, *task.command]
    if runs_script(task.command):
        sys.argv[:] = task.command
        run_script(task.command[0])
    else:
        module = importlib.import_module(MODULES[task.command[1]])
        sys.argv[:] = [str(module.__file__), *task.command[2:]]
        end_ours(lambda: module.main(task.command[2:]))


def end_ours(main: Callable[[], int | None]) -> NoReturn:
    """Run a program of ours, and end without taking the interpreter apart (see `foundation.program_life.end`).

    Raises:
        BaseException: what `main` does not catch; then the interpreter ends as it always does.
    """
    atexit._clear()  # what was imported for somebody else's task, before the fork, is not this program's to end
    try:
        code = main()
    except SystemExit as error:
        if not (error.code is None or isinstance(error.code, int)):
            raise
        code = error.code
    end(code or 0)


def run_script(path: str) -> None:
    """Run a script as the main module, in place of the one that the interpreter began with; nothing comes after it.

    Raises:
        SystemExit: as the script ends.
        BaseException: what it did not catch; whoever prints it sees the script's own frames only.
    """
    # The module that the interpreter began with, of another program: there is none but that one in all threads.
    main = vars(sys.modules["__main__"])
    main.clear()
    main.update(
        __name__="__main__",
        __doc__=None,
        __package__=None,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
        __spec__=None,
        __annotations__={},
        __builtins__=builtins,
        __file__=path,
        __cached__=None,
    )
    if not sys.flags.safe_path:
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))  # noqa: PTH120  (as the interpreter does)
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            source = file.read()
    except OSError as error:
        print(f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        sys.exit(2)
    try:
        exec(compile(source, path, "exec", dont_inherit=True), main)  # noqa: S102  (the very purpose)
    except SystemExit:
        raise
    except BaseException:
        _show_own_frames_only()
        raise


def _show_own_frames_only() -> None:
    """Leave the frames above the script's out of its traceback."""
    hook = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        while trace is not None and _is_ours(trace):
            trace = trace.tb_next
        error.__traceback__ = trace
        hook(kind, error, trace)

    sys.excepthook = show


def _is_ours(trace: TracebackType) -> bool:
    return os.path.dirname(trace.tb_frame.f_code.co_filename) == os.path.dirname(__file__)  # noqa: PTH120
