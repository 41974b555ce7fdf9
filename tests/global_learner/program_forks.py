"""Forks learners and agents that have imported everything already: a start takes a tenth, so a test may kill a hundred.

Reads orders from stdin, a line of JSON each: one to start a program is answered with its process number, one to wait
for a program that has ended with its exit code. An order may name more modules that are imported before the fork, for
it and those after it. A configuration may give constants of settings other values. The programs' own threads and their
RPC library begin in the fork: the parent has only imported them. The forks end with the parent.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
from typing import Any

import policy_net.settings
from foundation.program_life import importing

PROGRAMS = ("global_learner.cli", "cluster_agent.cli")
LATER = (
    "cluster_agent.agent",
    "cluster_agent.settings_file",
    "cluster_agent.backends.simulated.backend",
    "global_learner.service.server",
    "global_learner.loss",
    "scipy.linalg",
    "scipy.special",
)
"""What they import when they are to run; their other commands do without."""
_PR_SET_PDEATHSIG = 1


def main() -> dict[str, Any] | None:
    """Serve until standard input ends; in a fork: what it is to run."""
    with importing():
        for name in (*PROGRAMS, *LATER):
            importlib.import_module(name)
    policy_net.settings.CONSTANT = ""  # type: ignore[misc]  # marks no field: files of tests may hold them all
    parent = os.getpid()
    print("ready", flush=True)
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        if "wait" in order:
            _, status = os.waitpid(order["wait"], 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        if any(name not in sys.modules for name in order["imports"]):
            with importing():
                for name in order["imports"]:
                    importlib.import_module(name)
        child = os.fork()
        if not child:
            _become(order, parent)
            return order
        print(child, flush=True)
    return None


def _become(order: dict[str, Any], parent: int) -> None:
    """What a process of its own would be: output, folder, environment and command line."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    for number, path in ((1, order["log"]), (2, order["errors"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = [order["module"], *order["arguments"]]


if __name__ == "__main__":
    ordered = main()
    if ordered is not None:
        sys.exit(importlib.import_module(ordered["module"]).main())
