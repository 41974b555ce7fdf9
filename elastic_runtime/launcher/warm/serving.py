"""Serving of forks: processes with one thread that have imported much, and fork tasks of one launcher, or launchers.

A launcher's fork server waits for its launcher alone. First it imports what every task needs. Then it forks, and what
the script imports is imported by the child: should that start threads, or end the process, the parent is still there,
and serves in its place.

An agent's server forks launchers. Each gets a fork server for its tasks with it, a fork of the same process: so a job
begins without importing anything but what its script alone needs. A launcher has a session of its own, and outlives
this process and the agent. This process ends with the agent, as its channel does.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from elastic_runtime.launcher import parent_death
from elastic_runtime.launcher.script_source import Import, imports_ahead, obstacle_in, shadowed
from elastic_runtime.launcher.warm import forked_task, server_process, wire
from elastic_runtime.launcher.warm.forked_task import ForkedTask
from foundation import kinship
from foundation.program_life import importing

_OURS = (
    "elastic_runtime.worker.join",
    "elastic_runtime.worker.synchronous",
    "elastic_runtime.worker.asynchronous",
    "elastic_runtime.server.__main__",
)
_OF_LAUNCHERS = (
    "elastic_runtime.cli",
    "elastic_runtime.launcher.supervisor",
    "elastic_runtime.coordinator.__main__",
)
PLACEHOLDER_VARIABLE = "ELASTIC_ROOM_FOR_A_MARK"
_DRIVERS = ("/dev/nvidia", "/dev/kfd", "/dev/dri")


class ForkServer:
    """The fork server of one launcher.

    Args:
        at_start: top-level modules that the interpreter had loaded by itself.
    """

    def __init__(self, channel: socket.socket, launcher: int, at_start: frozenset[str]) -> None:
        self._channel = channel
        self._launcher = launcher
        self._at_start = at_start
        self._loaded: dict[str, str] = {}

    def answer(self) -> ForkedTask | None:
        """Fork as often as it is asked for; before the first script is forked, the launcher says which one it is.

        Returns:
            in a forked process: what it is to run; in the server: None, when the launcher wants no more.
        """
        while True:
            try:
                request, descriptors = wire.receive(self._channel)
            except (EOFError, OSError):
                return None
            if "script" in request:
                forked_task.take_on(request["environment"], request["folder"], descriptors, computes=False)
                if not self._is_made_ready(Path(request["script"])):
                    return None
                continue
            task = self._fork(request, descriptors)
            if task is not None:
                return task

    def _is_made_ready(self, script: Path) -> bool:
        """Import what a script needs; whether this process is the one that goes on."""
        imports = imports_ahead(script, os.environ)
        if imports and not self._goes_on(imports):
            return False
        tops = {name.partition(".")[0] for name in sys.modules} - self._at_start
        self._loaded = {name: getattr(sys.modules.get(name), "__file__", None) or "" for name in tops}
        share_memory()
        _send(self._channel, {"ready": True})
        return True

    def _goes_on(self, imports: Sequence[Import]) -> bool:
        """Whether this process serves on: the child that has imported, or the parent if that cannot."""
        verdict, verdict_end = os.pipe()
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            os.close(verdict)
            kinship.die_with_parent(parent)
            import_all(imports)
            fit = not obstacle()
            os.write(verdict_end, b"y" if fit else b"n")
            os.close(verdict_end)
            if not fit:
                os._exit(0)
            return True
        os.close(verdict_end)
        answer = os.read(verdict, 1)
        os.close(verdict)
        if answer == b"y":
            self._channel.close()
            os.waitpid(child, 0)
            return False
        os.waitpid(child, 0)
        return True

    def _fork(self, request: dict[str, Any], descriptors: list[int]) -> ForkedTask | None:
        """Fork twice: the process in between ends, so that the launcher becomes the parent."""
        leash = socket.socket(fileno=descriptors.pop(0))
        task = ForkedTask(request["python"], request["command"])
        refusal = self._refusal(task)
        if refusal:
            with suppress(OSError):
                wire.send(leash, {"refused": refusal})
        else:
            sys.stdout.flush()
            sys.stderr.flush()
            middle = os.fork()
            if middle == 0:
                forker = os.getpid()
                if os.fork():
                    os._exit(0)
                self._channel.close()
                forked_task.tie(self._launcher, forker, leash)
                forked_task.take_on(request["environment"], request["folder"], descriptors[:2])
                forked_task.hold(descriptors[2:], request.get("descriptors", []))
                forked_task.show_as([task.python, *task.command])
                return task
            os.waitpid(middle, 0)
        leash.close()
        for number in descriptors:
            os.close(number)
        return None

    def _refusal(self, task: ForkedTask) -> str:
        if not forked_task.runs_script(task.command):
            return ""
        script = Path(task.command[0])
        if late := obstacle_in(script):
            return late
        name = shadowed(script.resolve().parent, self._loaded)
        return f"{name} beside {script.name} has the name of a module that is imported already" if name else ""


def serve_tasks(channel: socket.socket, launcher: int, at_start: frozenset[str]) -> ForkedTask | None:
    """Be the fork server of a launcher, from the beginning; see `ForkServer`."""
    import_base()
    if found := obstacle():
        _send(channel, {"obstacle": found})
        return None
    return ForkServer(channel, launcher, at_start).answer()


def serve_launchers(channel: socket.socket, at_start: frozenset[str]) -> ForkServer | list[str] | None:
    """Fork launchers as often as the agent asks for one, and servers like this one that have imported more.

    Returns:
        in a forked process: the fork server that it is, or the launcher's module and arguments; else None, when the
        agent is gone.
    """
    import_base()
    with importing():
        for name in _OF_LAUNCHERS:
            importlib.import_module(name)
    serves = _is_made_ready(channel)
    while serves:
        try:
            request, descriptors = wire.receive(channel)
        except (EOFError, OSError):
            os._exit(0)  # what packages do at the end of a process would be done to what its forks still use
        parent = os.getpid()
        if os.fork():
            for number in descriptors:
                os.close(number)
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        channel.close()
        if "imports" not in request:
            return _born(request, descriptors, at_start)
        kinship.die_with_parent(parent)
        channel = socket.socket(fileno=descriptors[0])
        signal.alarm(request["seconds"])  # it is killed if this never ends
        import_all([Import(name, tuple(parts)) for name, parts in request["imports"]])
        signal.alarm(0)
        serves = _is_made_ready(channel)
    return None


def _is_made_ready(channel: socket.socket) -> bool:
    """Whether this process can be forked; the agent is told."""
    found = obstacle()
    if not found:
        share_memory()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what is forked here
    _send(channel, {"obstacle": found} if found else {"ready": True})
    return not found


def _born(request: dict[str, Any], descriptors: list[int], at_start: frozenset[str]) -> ForkServer | list[str]:
    """Be the launcher, with a fork server; or the fork server of one.

    Of the descriptors the first is the agent's leash, the next two are for output, and the launcher keeps the rest open
    as long as it lives.
    """
    leash = socket.socket(fileno=descriptors[0])
    os.setsid()
    if not forked_task.show_variable(PLACEHOLDER_VARIABLE, *request["shown"]):
        os._exit(1)  # nobody could find what is left of it
    try:
        os.chdir(request["folder"])
    except OSError:
        with suppress(OSError):
            wire.send(leash, {"refused": "its folder cannot be entered"})
        os._exit(1)
    forked_task.wait_for_leave(leash)
    forked_task.take_on(request["environment"], request["folder"], descriptors[1:3], computes=False)
    command = [request["module"], *request["arguments"]]
    forked_task.show_as([sys.executable, "-m", *command])
    if not request["forks_tasks"]:
        return command
    ours, its = socket.socketpair()
    launcher = os.getpid()
    try:
        server = os.fork()
    except OSError:  # it starts one by itself, when there is room
        return command
    if server == 0:
        ours.close()
        for number in descriptors[3:]:
            os.close(number)
        kinship.die_with_parent(launcher)
        parent_death.die_first()
        os.setsid()
        return ForkServer(its, launcher, at_start)
    its.close()
    forked = server_process.ForkedProcess(server)
    server_process.offer_inherited(server_process.Inherited(forked, ours, dict(os.environ)))
    return command


def _send(channel: socket.socket, message: object) -> None:
    with suppress(OSError):
        wire.send(channel, message)


def import_base() -> None:
    """Import what workers and parameter servers need."""
    with importing():
        for name in ("torch", "numpy", *_OURS):
            importlib.import_module(name)


def share_memory() -> None:
    """Leave all memory of now to forks: a collection in one would write to it, and so copy it."""
    gc.collect()
    gc.freeze()


def import_all(imports: Sequence[Import]) -> None:
    """Import what scripts will; what cannot be imported is left to the script, which says so when it runs."""
    with importing():
        for found in imports:
            with suppress(BaseException):
                __import__(found.name, fromlist=list(found.parts))


def obstacle() -> str:
    """Reason why this process cannot be forked, in a line; empty if it can.

    A forked process has one thread: what another held locked at that moment, it finds locked for ever. CUDA cannot be
    used in a process whose parent has begun to.

    Libraries that know of forks, such as OpenBLAS, end their threads when one is near: one is made before they are
    counted.
    """
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208  (only their number is wanted)
    if threads > 1:
        return f"what is imported for them starts threads ({threads - 1})"
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            target = str(Path(f"/proc/self/fd/{number}").readlink())
        except OSError:
            continue
        if target.startswith(_DRIVERS):
            return f"what is imported for them opens {target}"
    return ""
