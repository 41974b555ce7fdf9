"""Every kind of file that is carried about, damaged in every way: refused in one line, or harmless."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_identity_makers import certificate
from command_table import make_files
from damage import DAMAGE
from learner_makers import policy

from policy_net.errors import BadInput
from policy_net.exchange.connection_files import read_connection_files
from policy_net.exchange.enrolled_identity import EnrollmentFile, read_enrollment
from policy_net.exchange.identity_file import new_key, read_identity, write_private
from policy_net.exchange.policy_file import read_policy_file, write_policy_file
from policy_net.laboratory.speeds.measured_speeds import read_points
from policy_net.laboratory.speeds.speed import default_speeds, read_speed_table, write_speed_table
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.set_policy.policy import DEFAULT_SET_FILE

LONGEST_LINE = 900
TRACE = "job_id,submit_time_s,duration_s,num_gpus\n" + "".join(
    f"j{n},{60 * n},{600 + n},{1 + n % 4}\n" for n in range(20)
)
PODS = {"items": [{"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {}, "spec": {}}]}


def _identity(path: Path) -> None:
    key = new_key()
    write_private(path, key + certificate(key) + certificate(new_key(), "authority"))


def _pair(path: Path) -> None:
    key = new_key()
    path.write_bytes(certificate(key))
    path.with_name("own.key").write_bytes(key)


Make = Callable[[Path], Any]
Read = Callable[[Path], Any]
FILES: dict[str, tuple[Make, Read]] = {
    "policy": (lambda path: write_policy_file(path, policy()), read_policy_file),
    "set policy": (lambda path: path.write_bytes(DEFAULT_SET_FILE.read_bytes()), read_policy_file),
    "enrollment": (lambda path: EnrollmentFile("north", "token", 7072, 1e9, "authority").write(path), read_enrollment),
    "identity": (_identity, read_identity),
    "certificate": (_pair, lambda path: read_connection_files(path, path, path.with_name("own.key"))),
    "speeds": (lambda path: write_speed_table(default_speeds(), path), read_speed_table),
    "measured points": (
        lambda path: path.write_text("model,num_ps,num_workers,samples_per_s\nvgg-16,1,1,10\nvgg-16,2,2,18\n"),
        read_points,
    ),
    "trace": (lambda path: path.write_text(TRACE), lambda path: load_workload(str(path))),
    "pods": (lambda path: path.write_text(json.dumps(PODS)), lambda path: load_workload(f"k8s:{path}")),
    "sacct": (
        lambda path: path.write_text("JobID|Submit|Start|End|AllocTRES|State\n1|2026-01-01T00:00:00|a|b|c|d\n"),
        lambda path: load_workload(f"sacct:{path}"),
    ),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_damaged_file_is_one_line_or_no_harm(kind: str, tmp_path: Path) -> None:
    make, read = FILES[kind]
    wrong = []
    for name, damage in DAMAGE.items():
        folder = tmp_path / name
        folder.mkdir()
        path = folder / "file"
        make(path)
        damage(path)
        try:
            read(path)
        except BadInput as error:
            if not str(error).isprintable() or len(str(error)) > LONGEST_LINE:
                wrong.append(f"{name}: said {str(error)[:300]!r}")
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
    assert not wrong, f"{kind}:\n" + "\n".join(wrong)


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    for make, read in (FILES["enrollment"], FILES["identity"]):
        path = tmp_path / "secret"
        make(path)
        path.chmod(0o644)
        with pytest.raises(BadInput, match="chmod 600"):
            read(path)


def test_nothing_is_written_over_a_device_or_a_folder(tmp_path: Path) -> None:
    make_files(tmp_path)
    for name in ("full", "folder"):
        with pytest.raises(BadInput):
            write_policy_file(tmp_path / name, policy())
        with pytest.raises(OSError, match=r"device|directory"):
            write_private(tmp_path / name, b"secret")
    assert (tmp_path / "full").is_symlink()
