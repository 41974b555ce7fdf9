"""Forks learners that have imported everything already, so that a test may kill a hundred of them.

Reads lines from stdin: `start CONFIG LOG` forks a learner and prints its process number, `wait PID` prints its exit
code. The learner's own threads and its RPC library begin in the fork: the parent has only imported them.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    import global_learner.cli

    print("ready", flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "wait":
            _, status = os.waitpid(int(arguments[0]), 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        config, log = arguments
        child = os.fork()
        if child:
            print(child, flush=True)
            continue
        stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = ["global-learner", "serve", "--config", config]
        try:
            global_learner.cli.main()
        except SystemExit as ended:
            os._exit(ended.code if isinstance(ended.code, int) else 1)
        finally:
            os._exit(1)


if __name__ == "__main__":
    main()
