"""Folders of terms: what an earlier holder of the lease can no longer reach."""

import os
from pathlib import Path

import pytest

from global_learner.errors import LeaseLost, StateUnusable
from global_learner.service.standby import DIRECTORY_FILE, directory_number, point_to, take_term


def test_the_next_term_has_what_the_one_before_left_under_its_own_name(tmp_path: Path) -> None:
    first = take_term(tmp_path / "state", 1)
    (first / "aggregation.json").write_text("{}")
    later = take_term(tmp_path / "state", 5)
    assert later.name == "term-0000000005"
    assert (later / "aggregation.json").read_text() == "{}"
    assert not first.exists()
    assert take_term(tmp_path / "state", 5) == later


def test_an_earlier_holder_finds_no_folder_and_writes_into_no_file_that_is_used(tmp_path: Path) -> None:
    first = take_term(tmp_path, 1)
    for folder in ("receipts", "snapshots"):
        (first / folder).mkdir()
    names = ("commits", "receipts/updates-00000000000000000001.jsonl", "snapshots/head.partial")
    for name in names:
        (first / name).write_text("as it was")
    held = [os.open(first / name, os.O_RDWR) for name in names]
    later = take_term(tmp_path, 2)
    for descriptor in held:
        os.pwrite(descriptor, b"too late!", 0)
        os.close(descriptor)
    assert [(later / name).read_text() for name in names] == ["as it was"] * 3
    with pytest.raises(FileNotFoundError):
        (first / "commits").write_text("too late!")
    with pytest.raises(LeaseLost, match="term 2 has begun, and this learner's is 1"):
        take_term(tmp_path, 1)


def test_a_killed_start_leaves_a_term_that_the_next_one_takes(tmp_path: Path) -> None:
    take_term(tmp_path, 1)
    (tmp_path / "term-0000000003").mkdir()  # of one that saw no other folder, and lost its lease before it made its own
    (tmp_path / "term-0000000003" / "newest").touch()
    assert (take_term(tmp_path, 4) / "newest").exists()


def test_the_state_of_a_learner_without_a_database_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "registry.sqlite").touch()
    with pytest.raises(StateUnusable, match="holds the state of a learner without a database"):
        take_term(tmp_path, 1)


def test_a_name_leads_into_the_present_term(tmp_path: Path) -> None:
    for fence in (1, 2):
        term = take_term(tmp_path, fence)
        (term / "operator.sock").write_text(str(fence))
        point_to(term, "operator.sock")
        assert (tmp_path / "operator.sock").read_text() == str(fence)


def test_a_directory_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateUnusable, match="cannot be used"):
        take_term(tmp_path / "file", 1)


def test_a_directory_has_one_number_that_stays_over_its_terms(tmp_path: Path) -> None:
    assert directory_number(tmp_path / "state", make=False) is None
    number = directory_number(tmp_path / "state", make=True)
    take_term(tmp_path / "state", 1)
    take_term(tmp_path / "state", 2)
    assert directory_number(tmp_path / "state", make=False) == number == directory_number(tmp_path / "state", make=True)
    assert (tmp_path / "state" / DIRECTORY_FILE).stat().st_mode & 0o777 == 0o600
    assert directory_number(tmp_path / "other", make=True) != number


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(StateUnusable, match="name a directory that can be written"):
        directory_number(tmp_path / "state", make=True)
