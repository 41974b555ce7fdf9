import errno
import os
import socket
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation import files
from foundation.files import (
    PRIVATE,
    check_replaceable,
    is_file,
    is_folder,
    make_durable_folder,
    near_file,
    open_ordinary,
    read_ordinary,
    write_at,
    write_first,
    write_whole,
)

KINDS = {
    "folder": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
    "socket": lambda path: socket.socket(socket.AF_UNIX).bind(str(path)),
    "link": lambda path: path.symlink_to("/dev/zero"),
    "link to nothing": lambda path: path.symlink_to("nowhere"),
}
BUFFERS = st.lists(st.binary(max_size=64), max_size=1100)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_CREAT | os.O_APPEND])
def test_only_an_ordinary_file_is_opened_and_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, flags: int
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's name may be no longer than 107 bytes
    KINDS[kind](Path("it"))
    with pytest.raises(OSError, match=r"^\[Errno \d+\] it is a (folder|pipe|socket|link)") as error:
        open_ordinary(tmp_path / "it", flags)
    assert error.value.filename == str(tmp_path / "it")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "it").write_bytes(b"1234")
    assert read_ordinary(tmp_path / "it", 4) == b"1234"
    with pytest.raises(OSError, match="it has more than the 3 bytes of any such file"):
        read_ordinary(tmp_path / "it", 3)
    os.truncate(tmp_path / "it", 1 << 40)  # of holes: a disk may be smaller
    with pytest.raises(OSError, match="it has more than"):
        read_ordinary(tmp_path / "it")


def test_a_link_is_followed_where_that_is_said_and_only_to_an_ordinary_file(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"1")
    (tmp_path / "it").symlink_to("real")
    assert read_ordinary(tmp_path / "it", follow=True) == b"1"
    (tmp_path / "real").unlink()
    os.mkfifo(tmp_path / "real")
    with pytest.raises(OSError, match="it is a pipe, and no file"):
        read_ordinary(tmp_path / "it", follow=True)
    (tmp_path / "real").unlink()
    with pytest.raises(FileNotFoundError) as error:
        read_ordinary(tmp_path / "it", follow=True)
    assert error.value.filename == str(tmp_path / "it")


def test_no_link_in_a_folders_place_is_followed_below_the_one_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "disk" / "real").mkdir(parents=True)
    (tmp_path / "disk" / "real" / "it").write_bytes(b"1")
    (tmp_path / "jobs").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "linked").symlink_to("real")
    real, linked, below = tmp_path / "jobs" / "real", tmp_path / "jobs" / "linked", tmp_path / "jobs"
    assert read_ordinary(real / "it", below=below) == b"1"
    write_whole(real / "it", b"2", below=below)
    assert read_ordinary(linked / "it") == b"2"
    for refused in (
        lambda: read_ordinary(linked / "it", below=below),
        lambda: write_whole(linked / "it", "3", below=below),
    ):
        with pytest.raises(OSError, match="it is a link, which is not followed") as error:
            refused()
        assert error.value.filename == str(linked)
    assert [path.name for path in (tmp_path / "disk" / "real").iterdir()] == ["it"]
    assert (real / "it").read_bytes() == b"2"


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("alone", [True, False])
def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path, durable: bool, alone: bool) -> None:
    path = tmp_path / "weights"
    for data, read in ((b"one", b"one"), ("zwölf", "zwölf".encode()), ((b"a", memoryview(b"bc")), b"abc")):
        write_whole(path, data, durable=durable, alone=alone)
        assert path.read_bytes() == read
    assert [path.name for path in tmp_path.iterdir()] == ["weights"]


def test_of_several_the_first_file_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert write_first(path, b"one", mode=PRIVATE)
    assert not write_first(path, b"another")
    assert path.read_bytes() == b"one"
    assert stat.S_IMODE(path.stat().st_mode) == PRIVATE
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_where_a_file_has_one_name_only_the_first_stays_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert write_first(tmp_path / "key", b"one", mode=PRIVATE)
    assert not write_first(tmp_path / "key", b"another")
    assert (tmp_path / "key").read_bytes() == b"one"
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


@pytest.mark.parametrize("fails", ["pwritev", "fsync", "link"])
def test_a_first_file_that_cannot_be_written_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, fails, fail)
        with pytest.raises(OSError, match="No space left"):
            write_first(tmp_path / "key", b"one")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("fails", ["pwritev", "fsync"])
def test_a_write_that_fails_leaves_what_stood_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool, fails: str
) -> None:
    path = tmp_path / "weights"
    write_whole(path, b"before", alone=alone)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, fails, full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"after", alone=alone)
    assert path.read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["weights"]


def test_what_a_crash_left_of_a_partial_is_written_over(tmp_path: Path) -> None:
    for partial in ("weights.partial", f".weights.{os.getpid()}.partial"):
        (tmp_path / partial).write_bytes(b"longer than what comes")
        (tmp_path / partial).chmod(0o644)
    for alone in (True, False):
        write_whole(tmp_path / "weights", b"new", mode=PRIVATE, alone=alone)
    assert (tmp_path / "weights").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "weights").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["weights"]


@given(BUFFERS, st.integers(0, 100), st.integers(1, 5000))
def test_buffers_are_written_whole_however_little_the_system_takes_at_once(
    tmp_path_factory: pytest.TempPathFactory, buffers: list[bytes], offset: int, at_once: int
) -> None:
    path = tmp_path_factory.mktemp("at") / "file"
    real = os.pwritev

    def little(descriptor: int, some: list[memoryview], at: int) -> int:
        return os.pwrite(descriptor, b"".join(some)[:at_once], at)

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    files.os.pwritev = little
    try:
        end = write_at(descriptor, offset, buffers)
    finally:
        files.os.pwritev = real
        os.close(descriptor)
    whole = b"".join(buffers)
    assert end == offset + len(whole)
    assert path.read_bytes() == (b"\0" * offset + whole if whole else b"")


def test_folders_are_made_with_those_above_them(tmp_path: Path) -> None:
    make_durable_folder(tmp_path / "a" / "b")
    make_durable_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_names_as_people_type_them(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert is_file(tmp_path / "file")
    assert not is_folder(tmp_path / "file")
    assert is_folder(tmp_path)
    assert not is_file(tmp_path)
    for impossible in ("x" * 5000, "nul\0"):
        assert not is_file(tmp_path / impossible)
        assert not is_folder(tmp_path / impossible)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("weak.txt", "week.txt"),
        ("itp-1.csv", "itp-01.csv"),
        ("week.csv", "week.txt"),
        ("a.txt", None),
        ("quite-another.csv", None),
        ("no-folder/weak.txt", None),
        ("x" * 5000, None),
        ("\0", None),
    ],
)
def test_a_name_that_is_nearly_a_files_is_known(tmp_path: Path, typed: str, meant: str | None) -> None:
    for name in ("week.txt", "itp-01.csv", ".weak.txt", "b.txt"):
        (tmp_path / name).touch()
    (tmp_path / "weak").mkdir()
    assert near_file(tmp_path / typed) == (None if meant is None else tmp_path / meant)


def test_only_an_ordinary_files_name_may_be_taken(tmp_path: Path) -> None:
    check_replaceable(tmp_path / "free")
    (tmp_path / "file").touch()
    check_replaceable(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/null"), tmp_path / "nul\0"):
        with pytest.raises(OSError) as raised:  # noqa: PT011  (the sentence may be the system's)
            check_replaceable(path)
        assert raised.value.errno in (errno.EISDIR, errno.EINVAL)
