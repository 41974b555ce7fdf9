"""Run as a script in front of a task's program: ties the task's life to the launcher's, then becomes the program.

The kernel kills the task the moment the launcher dies, also by SIGKILL, where the launcher can clean up nothing. Other
systems than Linux have no such call; there tasks end by themselves when they miss their coordinator.

Usage: python -I -S parent_death.py LAUNCHER_PID PROGRAM [ARGUMENT…]
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Replace this process by the program named in the arguments."""
    launcher, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != launcher:  # it died before the kernel was told
            sys.exit(1)
    try:
        os.execvp(command[0], command)  # noqa: S606  (the very purpose)
    except OSError as error:
        print(f"{command[0]}: cannot be run ({error.strerror})", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main()
