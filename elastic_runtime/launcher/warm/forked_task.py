"""Task in a forked process: it takes on the task's session, output, environment and arguments, and runs it.

Whatever differs from one start of Python to the next, such as random states, differs from one fork to the next too.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import fcntl
import importlib
import importlib.machinery
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn

from elastic_runtime.launcher.warm import wire
from foundation import kinship
from foundation.program_life import end

THREADS_VARIABLE = "OMP_NUM_THREADS"
THREAD_VARIABLES = (THREADS_VARIABLE, "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_LOADED_THREADS = os.environ.get(THREADS_VARIABLE, "")
"""What libraries read as they were loaded; a fork may have other variables by the time that it is forked itself."""
_POLL_SECONDS = 0.0002


def tie(launcher: int, forker: int, leash: socket.socket) -> None:
    """Be the launcher's own child, in a session of one's own, and wait for its word; end if it is not there any more.

    Args:
        forker: process number of the one that forked this one, and ends now.
        leash: a socket of which the launcher has the other end.
    """
    # The kernel would take the forker's end for the launcher's, were it told before.
    while os.getppid() == forker:
        time.sleep(_POLL_SECONDS)
    kinship.die_with_parent(launcher)
    os.setsid()
    wait_for_leave(leash)


def wait_for_leave(leash: socket.socket) -> None:
    """Wait until the process that asked for this fork knows of it; end if that has given this start up."""
    try:
        wire.send(leash, {"pid": os.getpid()})
        wire.receive(leash)
    except (OSError, EOFError):
        os._exit(1)
    leash.close()


def take_on(environment: Mapping[str, str], folder: str, output: Sequence[int], *, computes: bool = True) -> None:
    """Write where the task writes, with its variables, in its folder.

    Args:
        computes: whether it uses several threads. They begin here, and a process that has them is not to be forked.

    Raises:
        OSError: the folder is gone.
    """
    for number, own in zip(output, (1, 2), strict=True):
        os.dup2(number, own)
        os.close(number)
    os.chdir(folder)
    threads = environment.get(THREADS_VARIABLE, "")
    if computes and threads != _LOADED_THREADS and threads.isdigit():
        _use_threads(int(threads), environment)
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    _begin_anew_at_random()


def hold(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Put descriptors under the numbers that the task's command line names; what had these is closed."""
    if not numbers:
        return
    above = [fcntl.fcntl(own, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1) for own in descriptors]
    for own in descriptors:
        os.close(own)
    for own, number in zip(above, numbers, strict=True):
        os.dup2(own, number, inheritable=True)
        os.close(own)


def _use_threads(count: int, environment: Mapping[str, str]) -> None:
    """Set the threads of loaded libraries, which would have read their number from the environment."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(count)
    if (numexpr := sys.modules.get("numexpr")) is not None:
        numexpr.set_num_threads(_stated(environment, "NUMEXPR_NUM_THREADS") or count)
    # OpenBLAS looks at variables of its own first, and never has more threads than it has cores.
    of_blas = _stated(environment, "OPENBLAS_NUM_THREADS") or _stated(environment, "GOTO_NUM_THREADS") or count
    of_blas = min(of_blas, len(os.sched_getaffinity(0)))
    for library in _libraries():
        for name in _THREAD_CALLS:
            if (call := getattr(library, name, None)) is not None:
                call(of_blas if "openblas" in name else count)


def _stated(environment: Mapping[str, str], variable: str) -> int:
    text = environment.get(variable, "")
    return int(text) if text.isdigit() else 0


_THREAD_CALLS = (
    "omp_set_num_threads",
    "openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "scipy_openblas_set_num_threads64_",
)


def _libraries() -> list[ctypes.CDLL]:
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:  # noqa: PTH123
        paths = {line.split(maxsplit=5)[-1].strip() for line in maps if ".so" in line}
    found = []
    for path in sorted(paths):
        if any(word in os.path.basename(path) for word in ("openblas", "gomp", "libomp", "iomp")):  # noqa: PTH119
            with suppress(OSError):
                found.append(ctypes.CDLL(path))
    return found


def _begin_anew_at_random() -> None:
    """Seed what Python itself does not."""
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.seed()
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)


def show_variable(placeholder: str, name: str, value: str) -> bool:
    """Show a variable among those that this process began with, in the place of one that makes room for it.

    What a process sets later is seen by itself and what it starts alone; those it began with are in `/proc`.

    Args:
        placeholder: the variable whose place is taken; it is gone, too.

    Returns:
        whether there was room.
    """
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
        block = file.read()
    start = _stat_field(_ENV_START)
    offset, length = 0, 0
    for entry in block.split(b"\0"):
        if entry.startswith(os.fsencode(placeholder) + b"="):
            length = len(entry)
            break
        offset += len(entry) + 1
    shown = os.fsencode(f"{name}={value}")
    if not start or not length or len(shown) > length:
        return False
    os.environ.pop(placeholder, None)
    ctypes.memmove(start + offset, shown.ljust(length, b"\0"), length)
    return True


_ARG_START, _ARG_END, _ENV_START = 45, 46, 47
"""Fields of /proc/PID/stat, counted from behind the name of the program. Source: proc_pid_stat(5), 48 to 50."""


def _stat_field(number: int) -> int:
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123
            return int(file.read().rpartition(")")[2].split()[number])
    except (OSError, ValueError, IndexError):
        return 0


def show_as(command: Sequence[str]) -> None:
    """Show this process in `ps` as the command that it is, as far as there is room."""
    start, end = _stat_field(_ARG_START), _stat_field(_ARG_END)
    if 0 < start < end:
        words = b"\0".join(os.fsencode(word) for word in command)[: end - start - 1]
        ctypes.memmove(start, words.ljust(end - start, b"\0"), end - start)


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
    if not getattr(sys.flags, "safe_path", False):
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
    hook = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        while trace is not None and _is_ours(trace):
            trace = trace.tb_next
        error.__traceback__ = trace
        hook(kind, error, trace)

    sys.excepthook = show


def _is_ours(trace: TracebackType) -> bool:
    return os.path.dirname(trace.tb_frame.f_code.co_filename) == os.path.dirname(__file__)  # noqa: PTH120
