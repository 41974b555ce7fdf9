"""Every variable that a worker or parameter server is told its job by, with bad values: one line that names it.

A new variable needs a row here, or `test_every_variable_has_a_row` fails.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from certificates import certificate_files
from command_table import make_files

import elastic_runtime
from elastic_runtime.checkpoint.rank_files import (
    CHECKPOINT_SECONDS_VARIABLE,
    FOLDER_VARIABLE,
    MEETING_VARIABLE,
    STORE_VARIABLE,
    meeting_of,
    rank_files,
)
from elastic_runtime.control.member_link import member_clock
from elastic_runtime.errors import BadInput
from elastic_runtime.member import environment as member_environment
from elastic_runtime.member.environment import MemberEnvironment
from elastic_runtime.protocol.plan import TaskRole
from elastic_runtime.telemetry import LEVEL_VARIABLE
from elastic_runtime.worker.ranks.rank_pod import BIND_VARIABLE, END_FILE_VARIABLE
from foundation.text import plain_line

LONGEST_LINE = 500
WORDS = {
    "blank": " ",
    "terminal": "\x1b[31mred",
    "newline": "a\nb",
    "not-utf-8": "\udcff\udcfe",
    "unicode": "größe",
    "long": "x" * 5_000,
    "upper": "NORTH",
    "markup": "[red]x[/red]",
}
FLAGS = WORDS | {"two": "2", "yes": "yes", "negative": "-1"}
HOSTS = WORDS | {"url": "http://127.0.0.1:80", "user": "a@127.0.0.1", "path": "127.0.0.1/x"}
PORTS = {"nought": "127.0.0.1:0", "beyond": "127.0.0.1:65536", "text": "127.0.0.1:many", "negative": "127.0.0.1:-1"}
PORTS |= {"none": "127.0.0.1:", "no-host": ":80", "huge": "127.0.0.1:" + "9" * 30, "other-digits": "127.0.0.1:٣"}
UNREADABLE = ("empty", "random", "zeroes", "text", "json", "latin-1", "folder", "nowhere", "train.py/x")
FILES = {name: name for name in UNREADABLE} | {"no-name-of-a-file": "n" * 5000, "not-utf-8": "\udcff\udcfe"}
URLS = {
    "no-url": "s3://",
    "chained": "simplecache::s3://bucket/x",
    "nobody's": "nosuch://bucket/x",
    "with-password": "ftp://me:secret@host/x",
    "long-url": "s3://" + "b" * 5000 + " ",
    "control": "s3://bucket/\x1b[31mred\n",
}
ROWS: dict[str, dict[str, str]] = {
    member_environment.COORDINATOR: HOSTS | PORTS | {"alone": "127.0.0.1", "empty": ""},
    member_environment.JOB: WORDS | {"empty": "", "parent": "../x", "dash": "-a"},
    member_environment.TASK: WORDS | {"empty": "", "parent": "../x", "digit": "0-worker"},
    member_environment.TOKEN_FILE: FILES | {"unset": ""},
    member_environment.CHECKPOINTS: URLS | {"a-file": "train.py", "unset": "", "no-name-of-a-file": "n" * 5000},
    member_environment.BIND: HOSTS | {"wrong-host": "256.0.0.1", "not-ours": "192.0.2.1", "beyond": "127.0.0.1:65536"},
    member_environment.ADVERTISE: HOSTS,
    member_environment.CA_FILE: {name: value for name, value in FILES.items() if name != "unset"} | {"key": "key.pem"},
    member_environment.INSECURE: FLAGS,
    member_environment.CURVE: FLAGS,
    member_environment.SHARED_MEMORY: FLAGS,
    member_environment.READY_FILE: {"a-folder": "folder", "below-a-file": "train.py/x", "no-folder": "nowhere/x"},
    member_environment.GRACE: {"text": "soon", "blank": " ", "negative": "-1", "infinite": "inf", "nan": "nan"},
}
PASSES = {"ELASTIC_ADVERTISE=upper": "names of hosts may be", "ELASTIC_ADVERTISE=long": "a name that nobody finds"}
PASSES |= {"ELASTIC_ADVERTISE=markup": "the same", "ELASTIC_TOKEN_FILE=json": "a long line may be a token"}
ELSEWHERE = {
    LEVEL_VARIABLE: "any other word stands for info",
    "ELASTIC_JOBS": "elastic-run's --folder",
    "ELASTIC_COLD": "elastic-run's --cold",
    "ELASTIC_": "how all of them begin",
    "ELASTIC_ALSO_IMPORT": "names of modules; what cannot be imported ahead is left to the script",
    "ELASTIC_ROOM_FOR_A_MARK": "overwritten before a launcher begins",
    FOLDER_VARIABLE: "of all-reduce; below",
    CHECKPOINT_SECONDS_VARIABLE: "the same",
    STORE_VARIABLE: "the same",
    MEETING_VARIABLE: "the same",
    BIND_VARIABLE: "of all-reduce in pods; tests/elastic_runtime/worker/ranks/test_rank_pod.py",
    END_FILE_VARIABLE: "the same; what cannot be written is logged",
    "ELASTIC_CERTIFICATE_FILE": "the same",
    "ELASTIC_KEY_FILE": "the same",
}


@pytest.fixture
def sound(tmp_path: Path) -> dict[str, str]:
    make_files(tmp_path)
    certificate_files(tmp_path)
    (tmp_path / "token").write_text("of-a-job-that-tests-run")
    return {
        "ELASTIC_COORDINATOR": "127.0.0.1:7080",
        "ELASTIC_JOB": "digits",
        "ELASTIC_TASK": "worker-0",
        "ELASTIC_TOKEN_FILE": str(tmp_path / "token"),
        "ELASTIC_CHECKPOINTS": str(tmp_path),
        "ELASTIC_CA_FILE": str(tmp_path / "cert.pem"),
        "ELASTIC_READY_FILE": str(tmp_path / "ready"),
        "ELASTIC_ADVERTISE": "localhost",
    }


def begun(environment: dict[str, str]) -> None:
    """What a member does with its environment before it asks anybody."""
    read = MemberEnvironment.read(environment)
    read.open_endpoint().close()
    read.open_link(TaskRole.WORKER, member_clock()).close()


@pytest.mark.heavy
def test_every_variable_has_a_row() -> None:
    source = Path(elastic_runtime.__file__).parent.rglob("*.py")
    texts = (
        node.value
        for file in source
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant)
    )
    named = {text for text in texts if isinstance(text, str) and text.startswith("ELASTIC_") and text.isupper()}
    assert set(ROWS) | set(ELSEWHERE) == {name for name in named if " " not in name}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        *((FOLDER_VARIABLE, value) for value in ("nowhere", "a-file", "n" * 5000, "a\nb", "\x1b[31mred")),
        *((CHECKPOINT_SECONDS_VARIABLE, value) for value in ("soon", "0", "-1", "nan", "inf", "1,5", "a\nb")),
        *((MEETING_VARIABLE, value) for value in ("0", "-2", "two", "1.5", "a\nb", "2\n", " ", "9" * 5000)),
        *((STORE_VARIABLE, value) for value in ("folder", "a\nb", *URLS.values())),
    ],
)
def test_so_are_the_variables_of_all_reduce(variable: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("")
    environment = {FOLDER_VARIABLE: str(tmp_path), CHECKPOINT_SECONDS_VARIABLE: "30"}
    assert rank_files(environment) is not None
    assert meeting_of(environment) == 1
    bad = str(tmp_path / value) if variable == FOLDER_VARIABLE else value
    with pytest.raises(BadInput, match=f"^{variable}( =|:) ") as caught:
        (meeting_of if variable == MEETING_VARIABLE else rank_files)({**environment, variable: bad})
    assert str(caught.value).isprintable()


def test_nobody_joins_others_without_their_folder() -> None:
    with pytest.raises(BadInput, match=f"^{MEETING_VARIABLE} = 2: and {FOLDER_VARIABLE} is not set"):
        meeting_of({MEETING_VARIABLE: "2"})


def test_a_sound_environment_is_taken(sound: dict[str, str]) -> None:
    begun(sound)


@pytest.mark.parametrize("variable", ROWS)
def test_a_bad_value_is_one_line_that_names_the_variable(
    variable: str, sound: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    there = set(tmp_path.iterdir())
    wrong = []
    for kind, value in ROWS[variable].items():
        label = f"{variable}={kind}"
        try:
            begun({**sound, variable: value})
        except BadInput as error:
            line = str(error)
            named = variable in line or plain_line(value, 60).rstrip("…") in line
            if not line.isprintable() or len(line) > LONGEST_LINE:
                wrong.append(f"{label}: said {line[:300]!r}")
            elif not named:
                wrong.append(f"{label}: names neither the variable nor its value: {line}")
        except Exception as error:
            wrong.append(f"{label}: {type(error).__name__}: {str(error)[:200]}")
        else:
            if label not in PASSES:
                wrong.append(f"{label}: taken")
    assert not wrong, "\n".join(wrong)
    assert set(tmp_path.iterdir()) == there
