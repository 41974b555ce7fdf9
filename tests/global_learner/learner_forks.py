"""Forks learners that have imported everything already: a start takes a tenth, and a test may kill a hundred of them.

Reads orders from stdin, a line of JSON each: one to start a learner is answered with its process number, one to wait
for a learner that has ended with its exit code. The learner's own threads and its RPC library begin in the fork: the
parent has only imported them. The forks end with the parent.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1


def main() -> None:
    import global_learner.cli

    gc.freeze()  # else a learner that ends looks through all that was imported for garbage
    parent = os.getpid()
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            _, status = os.waitpid(order["wait"], 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        child = os.fork()
        if child:
            print(child, flush=True)
            continue
        _become(order, parent)
        try:
            global_learner.cli.main()
        except SystemExit as ended:
            os._exit(ended.code if isinstance(ended.code, int) else 1)
        finally:
            os._exit(1)


def _become(order: dict[str, Any], parent: int) -> None:
    """What a process of its own would be in the child: output, environment and command line."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    stream = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = ["global-learner", "serve", "--config", order["config"]]


if __name__ == "__main__":
    main()
