"""Kinship: who ends with its parent."""

import os
import subprocess
import sys


def test_a_process_whose_parent_is_another_one_ends_at_once() -> None:
    program = "import sys; from foundation.kinship import die_with_parent; die_with_parent(int(sys.argv[1])); print(1)"
    for parent, out in ((os.getpid(), "1\n"), (os.getppid(), "")):
        done = subprocess.run(
            [sys.executable, "-c", program, str(parent)], capture_output=True, text=True, timeout=90, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0 if out else 1, out, "")
