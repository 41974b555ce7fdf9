"""What tasks write: kept within bounds, shown, and remembered for the one line that says why a task ended."""

import io
import os
import resource
import selectors
import threading
from pathlib import Path

import pytest

from elastic_runtime.launcher import task_process
from elastic_runtime.launcher.display import Display
from elastic_runtime.launcher.task_process import Stream, TaskLog, TaskOutput

LIMIT = 1000


class Pipes:
    """Both pipes of a task, written by the test."""

    def __init__(self, folder: Path) -> None:
        self.lines: list[tuple[Stream, bytes]] = []
        read_out, write_out = os.pipe()
        read_errors, write_errors = os.pipe()
        self.out, self.errors = os.fdopen(write_out, "wb", 0), os.fdopen(write_errors, "wb", 0)
        self.file = folder / "task.log"
        self.output = TaskOutput(
            os.fdopen(read_out, "rb", 0),
            os.fdopen(read_errors, "rb", 0),
            TaskLog(self.file, LIMIT),
            lambda stream, line: self.lines.append((stream, line)),
        )

    def finish(self) -> str:
        self.out.close()
        self.errors.close()
        return self.output.finish()


@pytest.fixture
def pipes(tmp_path: Path) -> Pipes:
    return Pipes(tmp_path)


def test_the_last_error_line_is_a_tasks_last_word(pipes: Pipes) -> None:
    pipes.errors.write(b"Traceback\nValueError: no \x1b[31mred\n\n")
    pipes.out.write(b"bye\n")
    assert pipes.finish() == "ValueError: no \\x1b[31mred"
    assert (Stream.OUT, b"bye") in pipes.lines


def test_what_a_task_writes_right_before_its_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked, may_go_on = threading.Event(), threading.Event()

    class Slow(selectors.DefaultSelector):
        """The reader's first look finds nothing; until it goes on the task has written and ended."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            found = super().select(timeout)
            if not looked.is_set():
                looked.set()
                assert may_go_on.wait(100)
            return found

    monkeypatch.setattr(task_process.selectors, "DefaultSelector", Slow)
    pipes = Pipes(tmp_path)
    assert looked.wait(100)
    pipes.errors.write(b"ValueError: no\n")
    pipes.out.write(b"bye\n")
    pipes.output._over.set()
    may_go_on.set()
    assert pipes.output.finish(100.0) == "ValueError: no"  # also while somebody holds the pipes open
    pipes.out.close()
    pipes.errors.close()


def test_without_an_error_it_is_the_last_line_also_one_without_an_end(pipes: Pipes) -> None:
    pipes.out.write(b"one\nprogress 1\rprogress 2")
    assert pipes.finish() == "progress 2"
    assert pipes.file.read_bytes() == b"one\nprogress 1\rprogress 2\n"


def test_a_line_without_end_is_not_gathered_for_ever(pipes: Pipes) -> None:
    def write() -> None:
        pipes.out.write(b"x" * 300_000)

    writer = threading.Thread(target=write)
    writer.start()
    writer.join(20)
    assert not writer.is_alive()
    pipes.finish()
    assert max(len(line) for _, line in pipes.lines) < 200_000


def test_a_pipe_that_somebody_holds_open_holds_nobody_up(pipes: Pipes) -> None:
    pipes.out.write(b"said\n")
    assert pipes.output.finish(wait_seconds=5.0) == "said"
    pipes.out.close()
    pipes.errors.close()


def test_a_log_keeps_the_newest_within_its_bound(tmp_path: Path) -> None:
    log = TaskLog(tmp_path / "a.log", LIMIT)
    for number in range(300):
        log.write(b"%08d\n" % number)
    log.close()
    kept = (tmp_path / "a.log.1").read_bytes() + (tmp_path / "a.log").read_bytes()
    assert kept.endswith(b"00000299\n")
    assert LIMIT < len(kept) <= 2 * LIMIT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log", "a.log.1"]
    again = TaskLog(tmp_path / "a.log", LIMIT)
    again.write(b"next life\n")
    again.close()
    assert (tmp_path / "a.log").read_bytes().endswith(b"00000299\nnext life\n")


def test_a_full_disk_costs_lines_and_nothing_else(tmp_path: Path) -> None:
    log = TaskLog(tmp_path / "worker-0.log", LIMIT)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        log.write(b"lost\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert log.lost_bytes == 5
    log.close()


def test_a_log_is_an_ordinary_file_of_its_owner_alone_or_none(tmp_path: Path) -> None:
    logs = tmp_path / "jobs" / "job" / "logs"
    logs.mkdir(parents=True)
    before = os.umask(0)
    try:
        TaskLog(logs / "worker-0.log", LIMIT).close()
    finally:
        os.umask(before)
    assert (logs / "worker-0.log").stat().st_mode & 0o777 == 0o600
    os.mkfifo(logs / "worker-1.log")
    with pytest.raises(OSError, match="pipe"):
        TaskLog(logs / "worker-1.log", LIMIT)
    other = tmp_path / "jobs" / "other"
    logs.parent.rename(other)
    logs.parent.symlink_to(other)
    with pytest.raises(OSError, match="it is a link, which is not followed"):
        TaskLog(logs / "worker-0.log", LIMIT)


def test_the_lowest_worker_is_shown_and_another_takes_its_place() -> None:
    out, errors = io.StringIO(), io.StringIO()
    display = Display("elastic-run", out, errors, 100)
    display.on_workers(["worker-10", "worker-9"], {"worker-10", "worker-9"})
    display.show("worker-9", Stream.OUT, b"nine")
    display.show("worker-10", Stream.OUT, b"ten")
    assert [display.shows(worker) for worker in ("worker-9", "worker-10")] == [True, False]
    display.on_workers(["worker-10"], {"worker-10"})
    display.show("worker-10", Stream.ERROR, b"oh")
    display.report("done")
    display.close()
    assert out.getvalue() == "worker-9 | nine\n"
    assert errors.getvalue() == "worker-10 | oh\nelastic-run: done\n"


def test_nobody_is_shown_where_the_launcher_is_to_be_quiet() -> None:
    display = Display("elastic-run", io.StringIO(), io.StringIO(), 100, quiet=True)
    display.on_workers(["worker-0"], {"worker-0"})
    assert not display.shows("worker-0")
    display.close()


def test_who_leaves_and_who_takes_its_place_are_shown_both() -> None:
    out = io.StringIO()
    display = Display("elastic-run", out, out, 100)
    display.on_workers(["worker-0", "worker-1", "worker-2"], {"worker-1", "worker-2"})
    for worker in ("worker-0", "worker-1", "worker-2"):
        display.show(worker, Stream.OUT, b"here")
    display.close()
    assert out.getvalue() == "worker-0 | here\nworker-1 | here\n"


class Stuck(io.StringIO):
    """A terminal that takes nothing until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.released = threading.Event()

    def write(self, text: str) -> int:
        self.begun.set()
        assert self.released.wait(20)
        return super().write(text)


def test_a_stuck_terminal_blocks_nobody_and_is_told_what_it_missed() -> None:
    out, errors = Stuck(), io.StringIO()
    display = Display("elastic-run", out, errors, 5)
    display.on_workers(["worker-0"], {"worker-0"})
    display.show("worker-0", Stream.OUT, b"first")
    assert out.begun.wait(20)
    for number in range(50):
        display.show("worker-0", Stream.OUT, b"%d" % number)
    out.released.set()
    display.close()
    assert out.getvalue().startswith("worker-0 | first\nworker-0 | 0\n")
    assert out.getvalue().count("\n") == 6
    assert errors.getvalue() == "elastic-run: 45 lines are in the logs only\n"
