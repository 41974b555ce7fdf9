"""Learners by name: who wins over whom, what is kept for its owner alone, and what cannot be used."""

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from foundation.command_line import run
from global_learner.policyctl import client, context_commands
from global_learner.policyctl import options as options_module
from global_learner.policyctl.cli import app
from global_learner.policyctl.contexts import Context, contexts_file, read_contexts, write_contexts
from global_learner.policyctl.options import CallOptions, polls

Typed = Callable[..., tuple[int, str, str]]
NOBODY = "127.0.0.1:1"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where contexts are, in a home of the test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("FEDL2_LEARNER", "FEDL2_CONTEXT", "FEDL2_CERT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(client, "credentials", lambda _: None)  # its files are looked at in tests of their own
    return tmp_path / "config" / "fedl2" / "policyctl.json"


@pytest.fixture
def typed(file: Path, capsys: pytest.CaptureFixture[str]) -> Typed:
    def type_(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(app, "policyctl", list(words))
        said = capsys.readouterr()
        return code, said.out, said.err

    return type_


def listed(typed: Typed) -> dict[str, bool]:
    """Contexts, and which is the current one."""
    code, out, _ = typed("context", "list", "-o", "json")
    assert code == 0
    return {entry["name"]: entry["current"] for entry in json.loads(out)}


def test_contexts_are_made_chosen_listed_and_forgotten(typed: Typed, file: Path, tmp_path: Path) -> None:
    assert listed(typed) == {}
    assert typed("context", "set", "lab", "--learner", "unix:state/operator.sock")[0] == 0
    assert typed("context", "set", "prod", "--learner", "prod.example:7070", "--cert", "ada.pem")[0] == 0
    assert listed(typed) == {"lab": True, "prod": False}
    assert typed("context", "use", "prod")[0] == 0
    assert listed(typed) == {"lab": False, "prod": True}
    kept = read_contexts(file)
    assert kept.by_name["lab"] == Context(f"unix:{tmp_path}/state/operator.sock")
    assert kept.by_name["prod"] == Context("prod.example:7070", cert=str(tmp_path / "ada.pem"))
    assert typed("context", "delete", "prod") == (0, "prod is forgotten; there is no current context\n", "")
    assert listed(typed) == {"lab": False}
    _, out, _ = typed("context", "list", "-o", "csv")
    assert out.splitlines()[0] == "context,current,learner,files"


def test_a_context_that_is_replaced_says_what_it_was(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    first = ("context", "set", "home", "--learner", "one.example:7070", "--cert", "ada.pem")
    assert "replaced" not in typed(*first)[1]
    assert json.loads(typed(*first, "-o", "json")[1])["replaced"] is None  # the same once more
    second = ("context", "set", "home", "--learner", "two.example:7070")
    assert f"replaced: was one.example:7070 with cert {tmp_path / 'ada.pem'}" in typed(*second)[1]
    found = json.loads(typed(*first, "-o", "json")[1])
    assert (found["learner"], found["replaced"]["learner"]) == ("one.example:7070", "two.example:7070")


def test_a_list_that_is_watched_is_printed_again_and_again(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    typed("context", "set", "lab", "--learner", NOBODY)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(context_commands, "polls", lambda once, every: polls(once, every, sleep=pause))
    code, out, err = typed("context", "list", "--watch", "--every", "5", "-o", "json")
    assert (code, err, pauses) == (0, "", [5.0, 5.0])
    assert [[entry["name"] for entry in json.loads(line)] for line in out.splitlines()] == [["lab"], ["lab"]]


def test_the_file_is_its_owners_alone_and_holds_no_key(typed: Typed, file: Path, tmp_path: Path) -> None:
    (tmp_path / "ada.pem").write_text("-----BEGIN PRIVATE KEY-----")
    assert typed("context", "set", "prod", "--learner", "prod.example:7070", "--cert", "ada.pem")[0] == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "PRIVATE" not in file.read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("context", "use", "prod"), "context 'prod': no such one in"),
        (("context", "delete", "prod"), "there are lab. `policyctl context set` makes one"),
        (("fleet", "--context", "prod"), "context 'prod': no such one in"),
        (("fleet", "--context", ""), "context '': no such one in"),
        (("context", "set", "a b", "--learner", NOBODY), "context 'a b': a name has at most 63 of letters"),
        (("context", "set", "-o", "json", "--learner", NOBODY, "--", "-o"), "begins with a letter or a digit"),
        (("context", "set", "prod", "--learner", "nowhere"), "--learner 'nowhere': must be HOST:PORT"),
        (("context", "set", "prod"), "Missing option '--learner'"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(typed: Typed, words: tuple[str, ...], says: str) -> None:
    assert typed("context", "set", "lab", "--learner", NOBODY)[0] == 0
    code, out, err = typed(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert listed(typed) == {"lab": True}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--cert", "bob.pem"), "bob.pem: cannot be read (No such file or directory)"),
        (("--cert", "text.pem"), "text.pem: "),
        (("--ca", "text.pem"), "text.pem: "),
        (("--key", "text.pem"), "--key needs --ca and --cert beside it"),
    ],
)
def test_files_that_no_connection_can_use_are_said_when_they_are_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    says: str,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    Path("text.pem").write_text("a line")
    code = run(app, "policyctl", ["context", "set", "prod", "--learner", NOBODY, *words])
    said = capsys.readouterr()
    assert (code, said.out, said.err.count("\n")) == (2, "", 1)
    assert says in said.err
    assert not (tmp_path / "config").exists()


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", '{"contexts": {}}', '{"current": "a", "contexts": {}}', '{"current": null, "contexts": {"a": {}}}',
     '{"current": null, "contexts": {"a": {"learner": 7}}}', '{"current": null, "contexts": {"a": {"learner": null}}}',
     '{"current": null, "contexts": {"a": {"learner": "b:1", "token": "x"}}}', '{"current": [], "contexts": {}}'],
)  # fmt: skip
def test_a_file_that_holds_something_else_is_said_in_a_line(typed: Typed, file: Path, content: str) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(content)
    file.chmod(0o600)
    for words in (("context", "list"), ("fleet",), ("context", "set", "lab", "--learner", NOBODY)):
        code, _, err = typed(*words)
        assert (code, err) == (2, f"policyctl: {file}: holds no contexts; remove it, and make them anew\n")
    assert file.read_text() == content
    assert typed("fleet", "--learner", NOBODY)[0] == 3, "who names a learner needs no file"


def test_a_file_that_others_may_write_is_not_believed(typed: Typed, file: Path) -> None:
    assert typed("context", "set", "lab", "--learner", NOBODY)[0] == 0
    file.chmod(0o620)
    code, _, err = typed("fleet")
    assert (code, "others may write it" in err, err.count("\n")) == (2, True, 1)


def reached(typed: Typed, monkeypatch: pytest.MonkeyPatch, *words: str) -> Context:
    """What a command would have connected to."""
    found: list[Context] = []
    connection = CallOptions.connection

    def note(options: CallOptions) -> Context:
        found.append(connection(options))
        return Context(NOBODY)

    with monkeypatch.context() as patched:
        patched.setattr(options_module.CallOptions, "connection", note)
        assert typed("fleet", *words)[0] == 3
    return found[0]


def test_what_is_typed_wins_over_a_context_and_a_named_context_over_the_environment(
    typed: Typed, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, eve = str(tmp_path / "ada.pem"), str(tmp_path / "eve.pem")
    assert reached(typed, monkeypatch) == Context("127.0.0.1:7070")
    typed("context", "set", "lab", "--learner", "lab:1")
    typed("context", "set", "prod", "--learner", "prod:1", "--cert", ada)
    lab, prod = Context("lab:1"), Context("prod:1", cert=ada)
    assert reached(typed, monkeypatch) == lab
    assert reached(typed, monkeypatch, "--context", "prod") == prod
    assert reached(typed, monkeypatch, "--context", "prod", "--cert", eve) == Context("prod:1", cert=eve)
    assert reached(typed, monkeypatch, "--context", "prod", "--learner", "new:1") == Context("new:1", cert=ada)
    assert reached(typed, monkeypatch, "--learner", "new:1") == Context("new:1"), "of no context"
    monkeypatch.setenv("FEDL2_CONTEXT", "prod")
    assert reached(typed, monkeypatch) == prod
    monkeypatch.setenv("FEDL2_CERT", eve)
    assert reached(typed, monkeypatch) == prod
    assert reached(typed, monkeypatch, "--context", "lab") == Context("lab:1", cert=eve)
    monkeypatch.setenv("FEDL2_LEARNER", "env:1")
    assert reached(typed, monkeypatch) == Context("env:1", cert=eve)
    assert reached(typed, monkeypatch, "--context", "prod") == prod
    assert reached(typed, monkeypatch, "--learner", "new:1") == Context("new:1", cert=eve)


def test_without_a_place_stated_contexts_are_below_the_home() -> None:
    at = Path("/home/ada/.config/fedl2/policyctl.json")
    assert contexts_file({"HOME": "/home/ada"}) == contexts_file({"HOME": "/home/ada", "XDG_CONFIG_HOME": "here"}) == at


def test_contexts_are_read_as_they_were_written(tmp_path: Path) -> None:
    contexts = read_contexts(tmp_path / "none").with_context("a", Context("b:1", "c", "d", "e"))
    write_contexts(tmp_path / "folder" / "file", contexts)
    assert read_contexts(tmp_path / "folder" / "file") == contexts
