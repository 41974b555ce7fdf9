"""A growing file's lines come once each, in order, through its becoming the file before."""

from pathlib import Path

import pytest

from foundation.growing_file import GrowingFile


def write(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as stream:
        stream.write(text)


def begin_anew(path: Path) -> None:
    """As a task's log does at its limit."""
    path.replace(path.with_name(f"{path.name}.1"))
    path.touch()


def test_lines_come_once_and_one_without_an_end_when_it_has_one_or_is_the_last(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    file = GrowingFile(path)
    assert list(file.read()) == []
    write(path, "one\ntw")
    assert list(file.read(last=False)) == [b"one\n"]
    write(path, "o\nthree")
    assert list(file.read(last=False)) == [b"two\n"]
    assert list(file.read()) == [b"three\n"]
    assert list(file.read()) == []


def test_what_was_written_before_the_file_was_begun_anew_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    write(path, "one\n")
    file = GrowingFile(path)
    assert list(file.read()) == [b"one\n"]
    write(path, "two\n")
    begin_anew(path)
    write(path, "three\n")
    assert list(file.read()) == [b"two\n", b"three\n"]


def test_of_a_file_that_was_begun_anew_several_times_what_is_left_is_told(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    write(path, "one\n")
    file = GrowingFile(path)
    assert list(file.read()) == [b"one\n"]
    for text in ("two\n", "three\n"):
        begin_anew(path)
        write(path, text)
    assert list(file.read()) == [b"two\n", b"three\n"]
    for text in ("four\n", "five\n", "six\n"):
        begin_anew(path)
        write(path, text)
    assert list(file.read()) == [b"five\n", b"six\n"]
    file.close()


def test_the_first_reading_has_the_file_before_too_and_of_all_the_last_lines(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    write(path, "one\ntwo\n")
    begin_anew(path)
    write(path, "three\n")
    assert list(GrowingFile(path).read()) == [b"one\n", b"two\n", b"three\n"]
    file = GrowingFile(path, tail=2)
    assert list(file.read()) == [b"two\n", b"three\n"]
    write(path, "four\nfive\nsix\n")
    assert list(file.read()) == [b"four\n", b"five\n", b"six\n"]
    assert list(GrowingFile(path, tail=0).read()) == []


def test_a_file_that_was_emptied_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    write(path, "a long line\n")
    file = GrowingFile(path)
    assert list(file.read()) == [b"a long line\n"]
    path.write_text("new\n", encoding="utf-8")
    assert list(file.read()) == [b"new\n"]


def test_a_line_that_never_ends_is_told_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foundation.growing_file._CHUNK_BYTES", 4)
    path = tmp_path / "worker-0.log"
    write(path, "abcdefgh12")
    assert list(GrowingFile(path).read(last=False)) == [b"abcd\n", b"efgh\n"]


def test_a_file_that_is_begun_anew_while_the_one_before_is_read_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    write(path, "one\n")
    begin_anew(path)
    write(path, "two\n")
    file = GrowingFile(path)
    lines = file.read()
    assert next(lines) == b"one\n"
    begin_anew(path)
    write(path, "three\n")
    assert [*lines, *file.read()] == [b"two\n", b"three\n"]
