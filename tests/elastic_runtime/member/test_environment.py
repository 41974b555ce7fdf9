"""What a member is told by its environment beyond where its job is."""

from pathlib import Path

import pytest

from elastic_runtime.control.member_link import ReadyFile
from elastic_runtime.errors import BadInput
from elastic_runtime.member.environment import MemberEnvironment


def environment(folder: Path, **more: str) -> MemberEnvironment:
    (folder / "token").write_text("of-no-job-at-all")
    (folder / "token").chmod(0o600)
    given = {
        "ELASTIC_COORDINATOR": "127.0.0.1:1",
        "ELASTIC_JOB": "digits",
        "ELASTIC_TASK": "worker-0",
        "ELASTIC_TOKEN_FILE": str(folder / "token"),
        "ELASTIC_CHECKPOINTS": str(folder),
    }
    return MemberEnvironment.read({**given, **more})


def test_a_member_ends_before_its_container_is_killed_unless_told_otherwise(tmp_path: Path) -> None:
    assert environment(tmp_path).grace_seconds < 30
    assert environment(tmp_path, ELASTIC_GRACE_SECONDS="110").grace_seconds == 110


@pytest.mark.parametrize("value", ["soon", "-1", "inf", "nan"])
def test_a_grace_that_is_no_time_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(BadInput, match=f"ELASTIC_GRACE_SECONDS is '{value}'; give seconds, 0 or more"):
        environment(tmp_path, ELASTIC_GRACE_SECONDS=value)


def test_a_ready_file_comes_and_goes_and_an_old_one_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "ready"
    path.touch()
    ready = ReadyFile(path)
    assert not path.exists()
    ready.mark()
    ready.mark()
    assert path.read_bytes() == b""
    ready.clear()
    ready.clear()
    assert not path.exists()


def test_a_ready_file_that_cannot_be_is_refused_in_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "missing" / "ready", tmp_path):
        with pytest.raises(BadInput, match="cannot be written: its folder is missing, or it is"):
            ReadyFile(path)
