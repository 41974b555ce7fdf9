"""A value made of files follows them, and one that cannot be made any more serves on."""

import os
from pathlib import Path

import pytest

from foundation.followed_files import POLL_SECONDS, Content, FollowedFiles


class Unpaired(Exception):
    pass


class Pair:
    """A certificate and its key, which say the same word; a clock that is set by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 0.0
        self.replaced: list[str] = []
        self.refused: list[str] = []
        self.write("one", "one")
        self.followed = FollowedFiles(
            self.make, Unpaired, self.replaced.append, self.refused.append, clock=lambda: self.now
        )

    def make(self, content: Content) -> str:
        certificate, key = (content(self.folder / name).decode() for name in ("certificate", "key"))
        if certificate != key:
            raise Unpaired(f"{key} is not the key of {certificate}")
        return certificate

    def write(self, certificate: str, key: str) -> None:
        (self.folder / "certificate").write_text(certificate)
        (self.folder / "key").write_text(key)

    def after_a_while(self) -> str:
        self.now += POLL_SECONDS
        return self.followed.current()


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_a_replacement_counts_from_the_next_look_on(pair: Pair) -> None:
    pair.write("two", "two")
    pair.now = POLL_SECONDS - 0.1
    assert pair.followed.current() == "one"
    pair.now = POLL_SECONDS
    assert pair.followed.current() == "two"
    assert pair.replaced == ["two"]


def test_a_replacement_of_the_same_size_and_time_is_seen(pair: Pair) -> None:
    before = (pair.folder / "key").stat()
    pair.write("eno", "eno")
    for name in ("certificate", "key"):
        os.utime(pair.folder / name, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert pair.after_a_while() == "eno"


def test_of_a_torn_pair_the_one_before_serves_on_and_the_reason_is_told_once(pair: Pair) -> None:
    pair.write("two", "one")
    assert [pair.after_a_while() for _ in range(3)] == ["one"] * 3
    assert pair.refused == ["one is not the key of two"] == [pair.followed.refusal]
    pair.write("two", "two")
    assert pair.after_a_while() == "two"
    assert (pair.followed.refusal, pair.replaced) == ("", ["two"])


def test_what_comes_back_as_it_was_is_no_replacement(pair: Pair) -> None:
    pair.write("", "one")
    pair.after_a_while()
    assert pair.followed.refusal
    pair.write("one", "one")
    assert pair.after_a_while() == "one"
    assert (pair.followed.refusal, pair.replaced) == ("", [])


@pytest.mark.parametrize("damage", ["gone", "folder", "pipe"])
def test_a_file_that_is_none_any_more_is_named_and_holds_nobody_up(pair: Pair, damage: str) -> None:
    path = pair.folder / "key"
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage == "pipe":
        os.mkfifo(path)
    assert pair.after_a_while() == "one"
    assert str(path) in pair.followed.refusal


def test_a_link_that_is_swapped_is_a_replacement_of_all_its_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for file in ("certificate", "key"):
            (tmp_path / name / file).write_text(name)
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    (mounted / "..data").symlink_to(tmp_path / "one")
    for file in ("certificate", "key"):
        (mounted / file).symlink_to(Path("..data") / file)
    now = [0.0]

    def make(content: Content) -> str:
        return (content(mounted / "certificate") + b" " + content(mounted / "key")).decode()

    followed = FollowedFiles(make, clock=lambda: now[0])
    (mounted / "..next").symlink_to(tmp_path / "two")
    (mounted / "..next").replace(mounted / "..data")
    now[0] = POLL_SECONDS
    assert followed.current() == "two two"


def test_the_first_time_nothing_can_serve_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FollowedFiles(lambda content: content(tmp_path / "missing"))
