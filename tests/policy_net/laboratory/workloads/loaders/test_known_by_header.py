"""A file of Slurm's accounting is known by its header where the word before it was left out."""

import gzip
import json
from pathlib import Path

import pytest

from foundation import command_line
from policy_net.cli import app

SAMPLE = Path(__file__).parent / "samples" / "sacct.txt"


def replayed(source: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict], str]:
    """Exit code, results and stderr of a replay."""
    code = command_line.run(app, "policy-net", ["replay", "--workload", source, "--policy", "fifo", "-o", "json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else [], err


def test_the_same_jobs_are_read_with_and_without_the_word(capsys: pytest.CaptureFixture[str]) -> None:
    code, (named,), _ = replayed(f"sacct:{SAMPLE}", capsys)
    guessed_code, (guessed,), _ = replayed(str(SAMPLE), capsys)
    assert (code, guessed_code) == (0, 0)
    for figure in ("jobs", "completed", "avg_jct_seconds", "makespan_seconds"):
        assert guessed[figure] == named[figure]


def test_what_was_guessed_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["replay", "--workload", str(SAMPLE), "--policy", "fifo"]
    assert command_line.run(app, "policy-net", words) == 0
    assert "  read as sacct:FILE, by its header\n" in capsys.readouterr().err


def test_a_compressed_file_is_known_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = tmp_path / "jobs.txt.gz"
    packed.write_bytes(gzip.compress(SAMPLE.read_bytes()))
    code, (result,), _ = replayed(str(packed), capsys)
    assert (code, result["jobs"]) == (0, 2)


def test_columns_that_are_padded_for_people_are_answered_with_how_to_print_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    padded = tmp_path / "jobs.txt"
    padded.write_text("JobID     Submit              State\n--------- ------------------- ---------\n")
    code, _, err = replayed(str(padded), capsys)
    assert code == 2
    assert "print it with sacct -aX -P" in err
    assert err.count("\n") == 1


def test_another_csv_is_answered_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "jobs.csv"
    other.write_text("id,state\n1,done\n")
    code, _, err = replayed(str(other), capsys)
    assert code == 2
    assert "column 'job_id' is missing from the header" in err
