"""A process that is asked a question: it ends with its asker also while it takes no step, and when it is in trouble."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foundation.question_process import CoreShare, ask_process

DEADLINE_SECONDS = 60.0
ASKED = """
import os, sys, time
from foundation.question_process import be_modest
be_modest(int(sys.argv[1]), 100.0, 2**30)
open(sys.argv[2], "w").write(str(os.getpid()))
time.sleep(100000)  # no step, as when a large file is read
"""
ASKER = """
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid()), sys.argv[2]]).wait()
"""


def test_what_was_asked_comes_back() -> None:
    echo = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])"
    big = b"0123456789" * 100_000
    assert ask_process([sys.executable, "-c", echo], big, DEADLINE_SECONDS, lambda: False) == big[::-1]


@pytest.mark.parametrize(
    ("program", "error", "said"),
    [
        ("raise SystemExit('out of luck')", ValueError, "out of luck"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", ValueError, "ended with -9"),
    ],
)
def test_trouble_is_its_last_line(program: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        ask_process([sys.executable, "-c", program], b"", DEADLINE_SECONDS, lambda: False)


def test_nobody_waits_longer_than_the_deadline_nor_than_the_asker() -> None:
    hang = [sys.executable, "-c", "import time; time.sleep(100000)"]
    with pytest.raises(TimeoutError, match=r"not done in 0\.1 s"):
        ask_process(hang, b"", 0.1, lambda: False)
    with pytest.raises(TimeoutError, match="the agent ends"):
        ask_process(hang, b"", DEADLINE_SECONDS, lambda: True)
    with pytest.raises(OSError, match="no/such"):
        ask_process(["/no/such/program"], b"", DEADLINE_SECONDS, lambda: False)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_it_ends_with_an_asker_that_is_killed_also_where_it_takes_no_step(tmp_path: Path) -> None:
    number = tmp_path / "pid"
    asker = subprocess.Popen([sys.executable, "-c", ASKER, ASKED, str(number)])
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (number.exists() and number.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    asked = int(number.read_text())
    os.kill(asker.pid, signal.SIGKILL)
    asker.wait(DEADLINE_SECONDS)
    while Path(f"/proc/{asked}").exists() and " Z " not in Path(f"/proc/{asked}/stat").read_text():
        assert time.monotonic() < deadline, "it goes on though nobody waits"
        time.sleep(0.05)


def test_what_was_used_before_the_first_step_counts_where_it_is_owed() -> None:
    now = 0.0
    rests: list[float] = []

    def rest(seconds: float) -> None:
        nonlocal now
        rests.append(seconds)
        now += seconds

    for part, owed, seconds in ((0.05, 0.0, 0.0), (0.05, 2.0, 38.0), (1.0, 2.0, 0.0)):
        rests.clear()
        share = CoreShare(part, lambda: 2.0, lambda: now, rest, owed)
        share.keep()
        assert sum(rests) == pytest.approx(seconds)


@pytest.mark.parametrize(("words", "added"), [("", 19), (", niceness=0", 0)])
def test_it_gets_what_nobody_else_wants_unless_its_asker_waits_for_it(words: str, added: int) -> None:
    program = f"""
import os, sys
from foundation.question_process import be_modest
before = os.nice(0)
be_modest(os.getppid(), 100.0, 2**30{words})
print(os.nice(0) - before, min(19 - before, {added}))
"""
    out = ask_process([sys.executable, "-c", program], b"", DEADLINE_SECONDS, lambda: False)
    found, wanted = map(int, out.split())
    assert found == wanted
