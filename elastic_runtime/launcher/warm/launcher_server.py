"""Serving of launchers: one process of an agent that has imported all, and forks launchers of jobs.

Each launcher gets a fork server for its tasks with it, which is a fork of the same process: so a job begins without
importing anything but what its script alone needs. A launcher has a session of its own, and outlives this process and
the agent. This process ends with the agent, as its channel does.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

from elastic_runtime.launcher import parent_death
from elastic_runtime.launcher.warm import becoming, inherited, wire
from elastic_runtime.launcher.warm.script_imports import Import
from elastic_runtime.launcher.warm.serving import ForkServer, import_all, import_base, obstacle, share_memory
from foundation import kinship
from foundation.program_life import importing

ROOM_VARIABLE = "ELASTIC_ROOM_FOR_A_MARK"
_IMPORTS = (
    "elastic_runtime.cli",
    "elastic_runtime.launcher.supervisor",
    "elastic_runtime.coordinator.__main__",
)


def serve(channel: socket.socket, at_start: frozenset[str]) -> ForkServer | list[str] | None:
    """Fork launchers as often as the agent asks for one, and servers like this one that have imported more.

    Args:
        at_start: top-level modules that the interpreter had loaded by itself.

    Returns:
        in a forked process: the fork server that it is, or the launcher's module and arguments; else None, when the
        agent is gone.
    """
    import_base()
    with importing():
        for name in _IMPORTS:
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
    with suppress(OSError):
        wire.send(channel, {"obstacle": found} if found else {"ready": True})
    return not found


def _born(request: dict[str, Any], descriptors: list[int], at_start: frozenset[str]) -> ForkServer | list[str]:
    """Be the launcher, with a fork server; or the fork server of one.

    Of the descriptors the first is the agent's leash, the next two are for what it writes, and the rest is for it to
    hold: they say that it lives.
    """
    leash = socket.socket(fileno=descriptors[0])
    os.setsid()
    if not becoming.show_variable(ROOM_VARIABLE, *request["shown"]):
        os._exit(1)  # nobody could find what is left of it
    try:
        os.chdir(request["folder"])
    except OSError:
        with suppress(OSError):
            wire.send(leash, {"refused": "its folder cannot be entered"})
        os._exit(1)
    becoming.wait_for_leave(leash)
    becoming.take_on(request["environment"], request["folder"], descriptors[1:3], computes=False)
    command = [request["module"], *request["arguments"]]
    becoming.show_as([sys.executable, "-m", *command])
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
    inherited.offer(inherited.Inherited(inherited.ForkedProcess(server), ours, dict(os.environ)))
    return command
