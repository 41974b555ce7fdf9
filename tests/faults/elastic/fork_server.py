"""Forks the processes of elastic jobs, which then need not import torch: each costs some 20 ms in place of seconds.

Lines of JSON come and go: what to run, the process's number, and how each process ended. It runs no thread, which is
what makes forking safe, and its children die with it.
"""

import ctypes
import faulthandler
import functools
import importlib
import json
import os
import runpy
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy.random  # noqa: F401  # for the children
import torch  # noqa: F401  # for the children

import elastic_runtime.coordinator.__main__
import elastic_runtime.coordinator.rules.job
import elastic_runtime.server.__main__
import elastic_runtime.server.parameter_server
import elastic_runtime.server.protocol.synchronous
import elastic_runtime.transport.sockets
import elastic_runtime.worker.asynchronous  # for the children
import elastic_runtime.worker.join
import elastic_runtime.worker.parameter_servers
import elastic_runtime.worker.synchronous  # for the children
from elastic_runtime.launcher.warm.forked_task import end_ours
from elastic_runtime.worker.protocol.exchange import WorkerExchange
from foundation.program_life import importing

_PR_SET_PDEATHSIG = 1


def _say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def _become(order: dict[str, Any], parent: int) -> None:
    """Run what was ordered, in the child."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    with open(os.devnull) as nothing, open(order["log"], "ab") as log:  # noqa: PTH123  # descriptors are what counts
        os.dup2(nothing.fileno(), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=False)
    os.environ.update(order["environment"])
    if os.environ.get("APART"):  # as on a machine of its own: no Unix sockets between it and the others
        elastic_runtime.transport.sockets._BOOT_ID = Path(os.devnull)
    if os.environ.get("SUSPECTS_AFTER_SECONDS"):
        elastic_runtime.worker.parameter_servers._SUSPECT_SECONDS = float(os.environ["SUSPECTS_AFTER_SECONDS"])
        elastic_runtime.server.protocol.synchronous._OVERDUE_SECONDS = float(os.environ["SUSPECTS_AFTER_SECONDS"])
    if os.environ.get("ADJUSTED"):
        _let_settings_be_adjusted(Path(os.environ["ADJUSTED"]))
        elastic_runtime.coordinator.__main__._LINGER_SECONDS = 1.0  # a test that waits for the end asks nothing more
    if os.environ.get("SERVERS_BEGIN_WITH"):
        _let_servers_wait_for(Path(os.environ["SERVERS_BEGIN_WITH"]))
    unheard, _, first_step = os.environ.get("UNHEARD_FROM_STEP", "").partition(" ")
    if unheard == os.environ.get("ELASTIC_TASK"):
        _drop_what_is_sent_from(int(first_step))
    sys.argv = [order["program"], *order["arguments"]]


class _Adjusted:
    """A coordinator's settings, some of which a file overrides whenever they are looked at."""

    def __init__(self, settings: Any, path: Path) -> None:
        self._settings, self._path = settings, path

    def __getattr__(self, name: str) -> Any:
        return json.loads(self._path.read_text()).get(name, getattr(self._settings, name))


def _let_settings_be_adjusted(path: Path) -> None:
    begin = elastic_runtime.coordinator.rules.job.CoordinatedJob.__init__

    def begin_adjusted(self: Any, settings: Any, *others: Any) -> None:
        begin(self, _Adjusted(settings, path), *others)  # type: ignore[arg-type]

    elastic_runtime.coordinator.rules.job.CoordinatedJob.__init__ = begin_adjusted  # type: ignore[method-assign]


def _let_servers_wait_for(path: Path) -> None:
    """As if their machine had no processor for them once they have the job's model, until a file is there."""
    begin = elastic_runtime.server.parameter_server.ParameterServer.__init__

    def begin_late(self: Any, *arguments: Any) -> None:
        while not path.exists():
            time.sleep(0.01)
        begin(self, *arguments)

    elastic_runtime.server.parameter_server.ParameterServer.__init__ = begin_late  # type: ignore[method-assign]


def _drop_what_is_sent_from(step: int) -> None:
    """As if the network dropped what this worker sends to servers."""
    for name in ("_pushes", "ask"):
        sends = getattr(WorkerExchange, name)
        dropping = functools.partialmethod(
            lambda self, sends, *what: sends(self, *what) if self.version <= step else [], sends
        )
        setattr(WorkerExchange, name, dropping)


def _run(order: dict[str, Any]) -> None:
    program = order["program"]
    if program == "coordinator":
        end_ours(elastic_runtime.coordinator.__main__.main)
    elif program == "server":
        end_ours(elastic_runtime.server.__main__.main)
    else:
        runpy.run_path(program, run_name="__main__")


def main() -> dict[str, Any] | None:
    """Serve until standard input ends; in a child: what it is to run."""
    with importing():
        for name in os.environ.pop("PRELOAD", "").split():
            importlib.import_module(name)
    parent = os.getpid()
    pending = b""
    running: set[int] = set()
    while True:
        if select.select([0], [], [], 0.01)[0]:
            data = os.read(0, 65536)
            if not data:
                return None
            pending += data
        *lines, pending = pending.split(b"\n")
        for line in lines:
            order = json.loads(line)
            child = os.fork()
            if child == 0:
                _become(order, parent)
                return order  # type: ignore[no-any-return]
            running.add(child)
            _say(started=child)
        while running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            running.discard(pid)
            _say(ended=pid, code=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    ordered = main()
    if ordered is not None:
        _run(ordered)
