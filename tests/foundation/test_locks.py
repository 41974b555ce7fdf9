import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from foundation.locks import FileLock, LockHeld, lock_holder

HOLD = """
import sys, time
from pathlib import Path
from foundation.locks import FileLock
lock = FileLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def no_sleep(seconds: float) -> None:
    assert seconds > 0


def test_a_lock_is_held_once_names_its_holder_and_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert lock_holder(path) is None
    with FileLock(path):
        assert lock_holder(path) == os.getpid()
        with pytest.raises(LockHeld) as raised:
            FileLock(path, sleep=no_sleep)
        assert raised.value.holder == os.getpid()
    assert lock_holder(path) is None
    lock = FileLock(path)
    lock.release()
    lock.release()
    FileLock(path).release()


def test_a_lock_ends_with_its_holder_however_it_dies(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert lock_holder(path) == holder.pid
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    assert lock_holder(path) is None
    assert path.read_text() == f"{holder.pid}\n"  # a number left behind means nothing
    FileLock(path).release()


def test_whoever_only_asks_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    asking = FileLock(path)
    waits: list[float] = []

    def asker_ends(seconds: float) -> None:
        waits.append(seconds)
        asking.release()

    FileLock(path, sleep=asker_ends).release()
    assert len(waits) == 1


def test_a_number_that_is_none_is_no_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock(path):
        path.write_bytes(b"\xff no number")
        with pytest.raises(LockHeld, match="process unknown"):
            FileLock(path, sleep=no_sleep)
        assert lock_holder(path) is None


def test_a_lock_that_cannot_be_made_is_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileLock(tmp_path / "nowhere" / "lock")
    with pytest.raises(IsADirectoryError):
        lock_holder(tmp_path)
