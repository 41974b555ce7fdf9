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
    assert "print it with sacct -aXD -P" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("word", ["", "sacct:"])
@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("JobID|Submit|Start|End|ElapsedRaw|AllocTRES", "column State is missing"),
        ("JobIDRaw|Submit|State|ElapsedRaw|AllocTRES", "column JobID is missing"),
        ("JobID|JobName|Partition|ExitCode", "column Submit is missing; column State is missing"),
        ("JobID,Submit,ElapsedRaw,State,AllocTRES", "its columns are divided by ',', and sacct -P (--parsable2)"),
        ('"JobID","Submit","ElapsedRaw","State"', "its columns are divided by ',', and sacct -P (--parsable2)"),
        ("JobID;Submit;ElapsedRaw;State;AllocTRES", "its columns are divided by ';', and sacct -P (--parsable2)"),
        ("JobID\tSubmit\tElapsedRaw\tState", "its columns are divided by tabs, and sacct -P (--parsable2)"),
        (
            "  JobID   JobName      State ",
            "by blanks, and sacct -P (--parsable2) divides them by '|'; column Submit is missing",
        ),
        (
            "JobID;Submit;Elapsed",
            "divided by ';', and sacct -P (--parsable2) divides them by '|'; column State is missing",
        ),
    ],
)
def test_what_sacct_printed_otherwise_is_answered_in_its_own_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str, header: str, says: str
) -> None:
    jobs = tmp_path / "jobs.txt"
    jobs.write_text(f"{header}\n1\n")
    code, _, err = replayed(f"{word}{jobs}", capsys)
    assert (code, err.count("\n")) == (2, 1)
    assert f"{jobs}: looks like what sacct prints, but " in err
    assert says in err
    assert err.count("is missing") == says.count("is missing"), "and nothing else"
    assert "print it with sacct -aXD -P --format=JobID,Submit," in err


def test_a_file_with_our_columns_is_ours_whatever_else_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = tmp_path / "jobs.csv"
    ours.write_text("job_id,submit_time_s,duration_s,num_gpus,JobID,State\na,0,600,1,7,COMPLETED\n")
    code, (result,), _ = replayed(str(ours), capsys)
    assert (code, result["jobs"]) == (0, 1)


def test_another_format_with_the_word_is_answered_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "jobs.csv"
    other.write_text("job_id,submit_time_s\n1,2\n")
    code, _, err = replayed(f"sacct:{other}", capsys)
    assert code == 2
    assert "column 'JobID' is missing from the header" in err


def test_another_csv_is_answered_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "jobs.csv"
    other.write_text("id,state\n1,done\n")
    code, _, err = replayed(str(other), capsys)
    assert code == 2
    assert "column 'job_id' is missing from the header" in err
