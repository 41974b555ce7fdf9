"""Parent death: a script in front of a task's program, which ends the task with its launcher, however that ends.

It tells the kernel to kill this process the moment its parent dies, also by SIGKILL, where a launcher can clean up
nothing; then it becomes the program, which keeps what the kernel was told. Other systems than Linux have no such call;
there tasks end by themselves when they miss their coordinator.

Where memory runs out, the kernel is to end a task, and neither its launcher nor anybody else: a task says so of itself.

It runs without the packages of this installation, as it starts in front of each task: nothing of ours is imported.

Usage: python -I -S parent_death.py LAUNCHER_PID PROGRAM [ARGUMENT…]

Source: prctl(2), PR_SET_PDEATHSIG, of Linux.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_OOM_SCORE = 500
"""Half of all memory, added to what a task uses when the kernel looks for whom to end."""


def main() -> None:
    """Replace this process by the program that the arguments name.

    Ends with 1 if the launcher has died, and with 127 if the program cannot be run.
    """
    launcher, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != launcher:  # it died before the kernel was told
            sys.exit(1)
        die_first()
    try:
        os.execvp(command[0], command)  # noqa: S606  (the very purpose)
    except OSError as error:
        print(f"{command[0]}: cannot be run ({error.strerror})", file=sys.stderr)
        sys.exit(127)


def die_first() -> None:
    """Be what the kernel ends before launchers and others, where memory runs out."""
    try:
        with open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:  # noqa: PTH123  (no more imports)
            if int(file.read()) < _OOM_SCORE:
                file.write(str(_OOM_SCORE))
    except (OSError, ValueError):
        return


if __name__ == "__main__":
    main()
