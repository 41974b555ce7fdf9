"""Program of fork servers: run by its path, so that nothing is imported from the folder that it is started in.

What a fork of it runs is run here, at the end of the program: there the interpreter's own end follows, with what the
task has registered for it, its exit code and its traceback.

Usage: python fork_server.py CHANNEL LAUNCHER_PID PADDING    of the tasks of one launcher
       python fork_server.py CHANNEL PADDING                 of launchers

The padding is blanks: room in this process's command line for that of the task that a fork of it is.
"""

import os
import sys

AT_START = frozenset(name.partition(".")[0] for name in sys.modules)
OURS = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120  (nothing is imported yet)
if not getattr(sys.flags, "safe_path", False) and sys.path and sys.path[0] == OURS:
    del sys.path[0]

import importlib  # noqa: E402
import socket  # noqa: E402

from elastic_runtime.launcher.warm import forked_task  # noqa: E402
from elastic_runtime.launcher.warm.serving import ForkServer, serve_launchers, serve_tasks  # noqa: E402

_OF_LAUNCHERS = 3
"""Words of a launcher's command line."""

if __name__ == "__main__":
    channel = socket.socket(fileno=int(sys.argv[1]))
    forked: ForkServer | forked_task.ForkedTask | list[str] | None
    if len(sys.argv) == _OF_LAUNCHERS:
        forked = serve_launchers(channel, AT_START)
    else:
        forked = serve_tasks(channel, int(sys.argv[2]), AT_START)
    if isinstance(forked, ForkServer):
        forked = forked.answer()
    if isinstance(forked, forked_task.ForkedTask):
        forked_task.run(forked)
    elif forked is not None:
        launcher = importlib.import_module(forked[0])
        sys.argv[:] = [str(launcher.__file__), *forked[1:]]
        forked_task.end_ours(launcher.main)
