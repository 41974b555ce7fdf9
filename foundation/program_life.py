"""Start, signals and end of all programs: Ctrl-C is answered at once, while the rest is still being imported.

An interpreter that is interrupted while it imports shows where it was. So programs begin here, where nothing is
imported that takes time, and their own module is loaded after that; console scripts have an answer even before
(`foundation.start`). What a command does, it does with Python's own answer to Ctrl-C, or with one of its own.

What was imported stays to the end: nobody looks through it for garbage, neither while it is imported nor at the end.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from foundation.errors import BAD_INPUT, INTERRUPTED

if TYPE_CHECKING:
    from typing_extensions import Self

OWN_PACKAGES = ("foundation", "policy_net", "cluster_agent", "global_learner", "elastic_runtime")
_interrupted: Callable[[int, FrameType | None], None] | None = None
"""Of the program that was begun; None in a process that was not begun here, such as a test's."""


def begin(program: str, module: str, answer_before: Callable[[int, object], None] | None = None) -> None:
    """Import a program's module, and run its `main`.

    Args:
        answer_before: what answered Ctrl-C until now, in place of Python.
    """
    global _interrupted  # noqa: PLW0603  (a process has one program)

    def interrupted(number: int, frame: FrameType | None) -> None:
        del number, frame
        os.write(2, f"{program}: interrupted\n".encode())
        os._exit(INTERRUPTED)  # nothing was begun that would have to be ended; an exception may be caught by an import

    # Whoever starts a program in the background may have it ignore Ctrl-C.
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, answer_before):
        signal.signal(signal.SIGINT, interrupted)
        _interrupted = interrupted
    if sys.version_info < (3, 11):
        _refuse(program, f"needs Python 3.11 or newer, and this is {sys.version.split()[0]}")
    try:
        with importing():
            imported = import_module(module)
    except ModuleNotFoundError as error:
        if (line := missing(error, program)) is None:
            raise
        _refuse(program, line)
    imported.main()


def _refuse(program: str, line: str) -> NoReturn:
    os.write(2, f"{program}: {line}\n".encode())
    sys.exit(BAD_INPUT)


EXTRA_OF = {
    "flwr": "learner",
    "gymnasium": "lab",
    "jinja2": "lab",
    "kubernetes": "kubernetes",
    "matplotlib": "lab",
    "optuna": "lab",
    "sqlalchemy": "learner",
    "torch": "lab",
    "urllib3": "kubernetes",
}
"""By what is imported; all else is of `agent`, which the others contain."""


def missing(error: ModuleNotFoundError, program: str) -> str | None:
    """What to install, in a line; None if a module of this project is missing, which is a fault of the project."""
    package = (error.name or "").split(".")[0]
    if package in ("", *OWN_PACKAGES):
        return None
    extra = EXTRA_OF.get(package) or {"global-learner": "learner", "policy-net": "lab"}.get(program, "agent")
    return f"needs the package {package}, which is not installed: pip install 'fedl2[{extra}]'"


@contextmanager
def importing() -> Iterator[None]:
    """Import what stays: the collector of garbage, which takes a fifth of the time that torch does, waits for the end.

    It does not look at what was made here later either, so nothing but imports belongs here.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def end(code: int) -> NoReturn:
    """End this process without taking the interpreter apart, once threads and exit handlers are done.

    To take it apart is half a second after torch was imported, and in a fork it means to write to, and so to copy, all
    that is shared. Programs of ours leave nothing open that only that would write; a user's script may.
    Source: `multiprocessing.popen_fork` of Python ends its children so.
    """
    if threading := sys.modules.get("threading"):
        threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


@contextmanager
def work() -> Iterator[None]:
    """Let Ctrl-C interrupt what is done here as Python does it: what was begun is ended in good order.

    Around what runs before and after, the process just ends, with a line.
    """
    answers = _interrupted is not None and signal.getsignal(signal.SIGINT) is _interrupted
    if answers:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if answers and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupted)


class SignalHandlers:
    """One handler for some signals, from `install` to `restore`; only in the main thread.

    Python runs a handler between two instructions of the main thread, whatever that was at: it sets a flag or a
    `foundation.signal_event.SignalEvent`, fills a `SimpleQueue` or raises, and leaves all work to whoever looks. It
    waits for no lock: the thread that it came upon may have it.

    A signal that whoever started the program had ignored, as `nohup` does with SIGHUP, stays ignored if it is one of
    `unless_ignored`.
    """

    def __init__(
        self,
        numbers: Iterable[signal.Signals],
        take: Callable[[int], None],
        unless_ignored: Iterable[signal.Signals] = (signal.SIGHUP,),
    ) -> None:
        self._numbers = tuple(numbers)
        self._take = take
        self._unless_ignored = frozenset(unless_ignored)
        self._before: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Take the signals from now on; a second time changes nothing."""
        for number in self._numbers:
            ignored = signal.getsignal(number) is signal.SIG_IGN and number in self._unless_ignored
            if number not in self._before and not ignored:
                self._before[number] = signal.signal(number, self._on_signal)

    def restore(self) -> None:
        """Put back what stood before."""
        while self._before:
            signal.signal(*self._before.popitem())

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._take(number)
