import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import optuna
import pytest
from studies import SPACE, opened

from policy_net.errors import BadInput
from policy_net.laboratory.tuning import study_file
from policy_net.laboratory.tuning.space import space_of
from policy_net.laboratory.tuning.study_file import TrialReport

REPORTS = (
    TrialReport((3.0, 2.5), (2.0, 3.0)),
    TrialReport((4.0,), (4.0, 4.0), given_up=True),
    TrialReport((3.5,), failure="the weights became infinite"),
)


@pytest.mark.heavy
def test_what_is_written_is_there_in_the_next_run_and_what_was_under_way_is_not_counted(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as study:
        assert study.trials() == []
        for number, report in enumerate(REPORTS):
            assert study.begin(SPACE.defaults) == number
            study.end(number, report)
        assert study.begin(SPACE.defaults | {"pairs": 7}) == len(REPORTS)
        study.confirm(1, 9, (1.0, 0.1))
    with closing(opened(tmp_path)) as study:
        found = study.trials()
        assert [trial.report for trial in found] == [*REPORTS, None]
        assert dict(found[3].values) == SPACE.defaults | {"pairs": 7}
        assert study.confirmed() == {(1, 9): (1.0, 0.1)}


def test_optunas_tools_can_read_it(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as study:
        study.end(study.begin(SPACE.defaults), REPORTS[0])
        path = study.path
    (summary,) = optuna.get_all_study_summaries(f"sqlite:///{path}")
    loaded = optuna.load_study(study_name=summary.study_name, storage=f"sqlite:///{path}")
    assert loaded.best_value == 2.5
    assert loaded.best_params == SPACE.defaults


def test_a_study_of_something_else_is_refused_in_one_line(tmp_path: Path, monkeypatch) -> None:
    opened(tmp_path).close()
    for wrong, says in (
        (lambda: opened(tmp_path, space_of("dl2")), "a study of set policies, and this one is of dl2 policies"),
        (lambda: opened(tmp_path, space_of("set", ["pairs"])), "and this one is of pairs;"),
        (lambda: opened(tmp_path, seed=6), "a study with seed 5, and this one has 6"),
        (lambda: opened(tmp_path, batch=[1]), r"a study with batch 4, and this one has \[1\]"),
    ):
        with pytest.raises(BadInput, match=says) as refusal:
            wrong()
        assert "another --out" in str(refusal.value)
    monkeypatch.setattr(study_file, "VERSION", 3)
    with pytest.raises(BadInput, match="of version 2, and this program's are of version 3"):
        opened(tmp_path)


def test_a_file_that_is_no_study_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / study_file.FILE
    for content in (b"", b"just a line\n", b"\x00" * 2000):
        path.write_bytes(content)
        with pytest.raises(BadInput, match="is no study"):
            opened(tmp_path)
        assert path.read_bytes() == content
    path.unlink()
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table jobs (name text)")
    with pytest.raises(BadInput, match="is no study"):
        opened(tmp_path)


def test_a_study_of_optunas_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    optuna.create_study(study_name="theirs", storage=f"sqlite:///{tmp_path / study_file.FILE}")
    with pytest.raises(BadInput, match="somebody else's study"):
        opened(tmp_path)


def test_a_study_of_another_version_of_optuna_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / study_file.FILE)) as database:
        database.execute("update version_info set schema_version = 3")
        database.execute("update alembic_version set version_num = 'v3.0.0.d'")
        database.commit()
    with pytest.raises(BadInput, match="written by another version of Optuna"):
        opened(tmp_path)


def test_a_study_that_was_being_made_when_the_program_was_killed_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / f"{study_file.FILE}.partial").write_bytes(b"half of it")
    with closing(opened(tmp_path)) as study:
        assert study.begin(SPACE.defaults) == 0
    assert [path.name for path in tmp_path.iterdir()] == [study_file.FILE]


FULL = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from studies import SPACE, opened
from policy_net.laboratory.tuning.study_file import StudyNotWritten
from policy_net.laboratory.tuning.study_file import TrialReport
folder = Path(sys.argv[2])
study = opened(folder)
resource.setrlimit(resource.RLIMIT_FSIZE, (study.path.stat().st_size, resource.RLIM_INFINITY))
ended = 0
try:
    while ended < 10_000:
        study.end(study.begin(SPACE.defaults), TrialReport((1.0,), (0.5,) * 200))
        ended += 1
except StudyNotWritten as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
study.close()
study = opened(folder)
found = study.trials()
assert sum(trial.report is not None for trial in found) == ended, found
study.end(study.begin(SPACE.defaults), TrialReport((1.0,), (0.5,)))
"""


@pytest.mark.heavy
def test_a_full_disk_is_one_line_and_what_was_written_stands(tmp_path: Path) -> None:
    words = [sys.executable, "-c", FULL, str(Path(__file__).parent), str(tmp_path)]
    said = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    (line,) = said.stdout.splitlines()
    assert "cannot be written or read" in line
    assert "it goes on" in line
