"""Programs as a shell runs them: a reader that goes away, a full disk, closed streams, a learner that is not there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_table import make_files
from reserved_port import ReservedPort

pytestmark = pytest.mark.heavy

SECONDS = 200.0
INSPECT = "policy_net.cli inspect good.safetensors"
POLICYCTL = "global_learner.policyctl.cli"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    make_files(folder)
    return folder


def shell(folder: Path, command: str) -> tuple[int, str, str]:
    """Run `PYTHON -m COMMAND` with its redirections; exit code, standard output, standard error."""
    line = f"set -o pipefail; {sys.executable} -m {command}"
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, timeout=SECONDS, check=False)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def test_a_reader_that_has_seen_enough_is_no_failure(folder: Path) -> None:
    code, _, err = shell(folder, f"{INSPECT} -o json | true")
    assert (code, err) == (0, "")


def test_a_full_disk_is_one_line_and_a_failure(folder: Path) -> None:
    code, _, err = shell(folder, f"{INSPECT} -o json > /dev/full")
    assert code == 1
    assert len(err.splitlines()) == 1
    assert "No space left on device" in err


def test_closed_streams_are_wanted_so(folder: Path) -> None:
    assert shell(folder, f"{INSPECT} >&-")[0] == 0
    code, out, _ = shell(folder, f"{INSPECT} -o json 2>&-")
    assert code == 0
    json.loads(out)


def test_a_name_that_is_no_utf_8_is_shown_escaped(folder: Path) -> None:
    code, out, err = shell(folder, "policy_net.cli inspect $'\\xff\\xfe\\x1b[31m.safetensors'")
    assert (code, out) == (2, "")
    assert err.isprintable() or err.rstrip("\n").isprintable()
    assert "cannot be read" in err


def test_a_learner_that_is_not_there_is_exit_code_3_and_no_half_result(folder: Path) -> None:
    nobody = ReservedPort()
    for command in ("fleet", "report --out report"):
        address = nobody.address
        code, out, err = shell(folder, f"{POLICYCTL} {command} --learner {address} --timeout 1 -o json")
        assert (code, out) == (3, "")
        assert len(err.splitlines()) == 1
        assert address in err
        assert "start it" in err
    nobody.close()
    assert not (folder / "report").exists()


def test_a_device_is_not_replaced_by_a_file(folder: Path) -> None:
    (folder / "null").symlink_to("/dev/null")
    words = "policy_net.cli train --workload dl2:jobs=2 --nodes 2 --out null"
    code, _, err = shell(folder, words)
    assert code == 2
    assert "it is a device or a pipe" in err
    assert (folder / "null").is_symlink()
