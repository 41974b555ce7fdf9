"""A task begins only under a living launcher, and says what cannot be run."""

import os
import subprocess
import sys

import pytest

from elastic_runtime.launcher import parent_death


def tied(launcher: int, *command: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-I", "-S", str(parent_death.__file__), str(launcher), *command]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=100)


def test_it_becomes_the_program() -> None:
    done = tied(os.getpid(), sys.executable, "-c", "print('hello')")
    assert (done.returncode, done.stdout) == (0, "hello\n")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no parent death signal")
def test_a_launcher_that_died_meanwhile_gets_no_task() -> None:
    done = tied(os.getppid(), sys.executable, "-c", "print('hello')")
    assert (done.returncode, done.stdout) == (1, "")


def test_a_program_that_is_not_there_is_named() -> None:
    done = tied(os.getpid(), "/no/python")
    assert done.returncode == 127
    assert done.stderr == "/no/python: cannot be run (No such file or directory)\n"
