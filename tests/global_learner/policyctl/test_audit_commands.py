"""`policyctl audit`: a file is checked alone, a learner's log as it tells it."""

import contextlib
import dataclasses
import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from learner_process import LearnerProcess

from foundation.command_line import run
from global_learner.policyctl import cli as policyctl
from global_learner.policyctl.client import AdminClient
from global_learner.storage.audit_chain import IDENTITIES, VERSIONS, AuditLine, digest_of
from policy_net.exchange.generated import fleet_pb2 as pb

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "policyctl.md"
Typed = Callable[..., tuple[int, str, str]]


def line_of(log: str, number: int, before: str) -> AuditLine:
    content = (1.5e9 + number, "ada", "assigned", log, f"v{number} to v{number + 1}")
    return AuditLine(log, number, *content, before, digest_of(before, *content))


def both_logs(lines: int = 4) -> list[AuditLine]:
    """Two logs, line by line in turn, as they stand in an export."""
    found: dict[str, list[AuditLine]] = {IDENTITIES: [], VERSIONS: []}
    for number in range(1, lines + 1):
        for own in found.items():
            own[1].append(line_of(own[0], number, own[1][-1].digest if own[1] else ""))
    return [line for pair in zip(*found.values(), strict=True) for line in pair]


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Typed:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDL2_LEARNER", "127.0.0.1:1")

    def typed(*words: str) -> tuple[int, str, str]:
        code = run(policyctl.app, "policyctl", list(words))
        said = capsys.readouterr()
        return code, said.out, said.err

    return typed


def write(path: Path, lines: list[AuditLine]) -> None:
    path.write_text("".join(f"{line.to_json()}\n" for line in lines))


@pytest.mark.parametrize("read", [json.loads, yaml.safe_load])
def test_a_whole_file_is_said_to_be_with_the_digests_to_note(typed: Typed, read: Callable[[str], dict]) -> None:
    lines = both_logs()
    write(Path("a.jsonl"), lines)
    form = "json" if read is json.loads else "yaml"
    code, out, err = typed("audit", "verify", "--file", "a.jsonl", "--head", lines[1].digest, "-o", form)
    assert (code, err) == (0, "")
    found = read(out)
    assert found["sound"] is True
    assert found["logs"] == [
        {"log": log, "first_line": 1, "lines": 4, "head": head, "misfit_line": None, "misfit": None}
        for log, head in ((IDENTITIES, lines[-2].digest), (VERSIONS, lines[-1].digest))
    ]
    assert found["heads"] == [{"head": lines[1].digest, "log": VERSIONS, "line": 1, "lines_since": 3}]
    assert lines[-1].digest in typed("audit", "verify", "--file", "a.jsonl")[1]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda lines: [*lines[:2], dataclasses.replace(lines[2], actor="eve"), *lines[3:]], "log identities, line 2:"),
        (lambda lines: [*lines[:3], *lines[4:]], "log versions, line 2: is missing"),
        (lambda lines: [*lines[:3], lines[5], lines[4], lines[3], *lines[6:]], "log versions, line 2: line 3 stands"),
        (lambda lines: [*lines, lines[-1]], "log versions, line 5: line 4 stands there a second time"),
        (lambda lines: lines[1:], "log identities, line 2: stands first"),
    ],
)
def test_the_first_line_that_does_not_fit_is_named_on_one_line(
    typed: Typed, damage: Callable[[list[AuditLine]], list[AuditLine]], says: str
) -> None:
    write(Path("a.jsonl"), damage(both_logs()))
    code, out, err = typed("audit", "verify", "--file", "a.jsonl", "-o", "json")
    assert (code, len(err.splitlines())) == (1, 1)
    assert says in err
    assert json.loads(out)["sound"] is False
    assert says in json.loads(out)["fault"]
    assert "NOT what was written" in typed("audit", "verify", "--file", "a.jsonl")[1]


def test_what_the_guide_tells_people_to_run_finds_the_same(typed: Typed) -> None:
    del typed  # it has made the folder
    (program,) = re.findall(r"```python\n(import hashlib.*?)```", GUIDE.read_text(), re.DOTALL)
    lines = both_logs()
    write(Path("audit.jsonl"), lines)
    exec(program, {})  # noqa: S102  (the guide's own)
    write(Path("audit.jsonl"), [*lines[:-1], dataclasses.replace(lines[-1], actor="eve")])
    with pytest.raises(AssertionError, match="4"):
        exec(program, {})  # noqa: S102


def test_a_cut_end_is_told_by_a_digest_that_was_noted(typed: Typed) -> None:
    lines = both_logs()
    write(Path("a.jsonl"), lines[:-2])
    assert typed("audit", "verify", "--file", "a.jsonl")[0] == 0
    code, out, err = typed("audit", "verify", "--file", "a.jsonl", "--head", lines[-1].digest, "-o", "json")
    assert code == 1
    assert "stands nowhere in it" in err
    assert json.loads(out)["heads"][0]["line"] is None
    changed = [*lines[:-1], dataclasses.replace(lines[-1], actor="eve")]
    write(Path("a.jsonl"), changed)
    assert typed("audit", "verify", "--file", "a.jsonl", "--head", lines[-1].digest)[0] == 1


def test_an_export_that_began_later_is_good_after_what_was_noted(typed: Typed) -> None:
    lines = both_logs()
    write(Path("a.jsonl"), lines[4:])
    assert typed("audit", "verify", "--file", "a.jsonl")[0] == 1
    after = [word for line in lines[2:4] for word in ("--after", line.digest)]
    code, out, _ = typed("audit", "verify", "--file", "a.jsonl", *after, "-o", "json")
    assert (code, [log["first_line"] for log in json.loads(out)["logs"]]) == (0, [3, 3])


def test_a_file_that_is_cut_or_damaged_amid_is_named_by_its_line(typed: Typed) -> None:
    write(Path("a.jsonl"), both_logs())
    whole = Path("a.jsonl").read_bytes()
    Path("a.jsonl").write_bytes(whole[:-9])
    assert "line 8 of the file has no end" in typed("audit", "verify", "--file", "a.jsonl")[2] or (
        "line 8 of the file is none that" in typed("audit", "verify", "--file", "a.jsonl")[2]
    )
    Path("a.jsonl").write_bytes(whole.replace(b"ada", b"\xff\xff\xff", 1))
    code, out, err = typed("audit", "verify", "--file", "a.jsonl", "-o", "json")
    assert (code, out) == (2, ""), "nothing of it is an export's"
    assert "damaged from its first line on" in err


@pytest.mark.parametrize(
    "words",
    [
        ("--file", "nowhere"),
        ("--file", "."),
        ("--file", "a.jsonl", "--head", "abc"),
        ("--file", "a.jsonl", "--head", "G" * 64),
        ("--file", "a.jsonl", "--after", ""),
        ("--after", "0" * 64),
    ],
)
def test_bad_input_is_one_line(typed: Typed, words: tuple[str, ...]) -> None:
    write(Path("a.jsonl"), both_logs())
    code, out, err = typed("audit", "verify", *words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)


def test_a_learner_that_tells_no_digests_is_of_an_earlier_version(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = [pb.AuditEntry(unix_seconds=1.0, actor="ada", action="pinned", subject="v1")]
    monkeypatch.setattr(AdminClient, "ask", lambda _self, _request: pb.ListAuditReply(entries=reported))
    code, out, err = typed("audit", "verify")
    assert (code, out) == (1, "")
    assert "of an earlier version" in err


def test_the_list_needs_no_name(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    reported = [pb.AuditEntry(actor="ada", action="pinned")]
    monkeypatch.setattr(AdminClient, "ask", lambda _self, _request: pb.ListAuditReply(entries=reported))
    for words in (("audit",), ("audit", "list"), ("audit", "--since", "7d")):
        code, out, _ = typed(*words, "-o", "json")
        assert (code, [line["actor"] for line in json.loads(out)]) == (0, ["ada"])
    assert typed("audit", "verfy")[0] == 2
    assert "verify" in typed("audit", "--help")[1]


@pytest.mark.heavy
def test_a_running_learners_log_is_checked_as_it_stands_on_disk(tmp_path: Path, typed: Typed, monkeypatch) -> None:
    learner = LearnerProcess(tmp_path)
    learner.start()
    monkeypatch.setenv("FEDL2_LEARNER", learner.operator_address)

    def asked(*words: str) -> dict:
        code, out, err = typed(*words, "-o", "json")
        assert (code, err) == (0, "")
        return json.loads(out)

    def be(actor: str) -> None:
        with contextlib.closing(sqlite3.connect(learner.state_dir / "registry.sqlite", timeout=60)) as connection:
            connection.execute("UPDATE audit SET actor = ? WHERE number = 1", (actor,))
            connection.commit()

    try:
        for word in ("pin", "unpin"):
            asked("version", word, "v1")
        versions = asked("audit", "verify")["logs"][1]
        assert (versions["log"], versions["first_line"], versions["lines"]) == ("versions", 1, 2)
        assert asked("audit", "export", "--out", "audit.jsonl")["lines"] == 2
        asked("version", "pin", "v1")
        assert asked("audit", "verify", "--file", "audit.jsonl", "--head", versions["head"])["sound"] is True
        (noted,) = asked("audit", "verify", "--head", versions["head"])["heads"]
        assert (noted["line"], noted["lines_since"]) == (2, 1), "the log went on, and nothing was cut off"
        be("eve")
        code, out, err = typed("audit", "verify", "-o", "json")
        assert (code, json.loads(out)["sound"], len(err.splitlines())) == (1, False, 1)
        assert "the audit log: log versions, line 1: was changed" in err
        be("operator")
        found = asked("audit", "verify")
        assert found["sound"] is True
        assert learner.end() == 0
        said = [
            line for text in learner.log.read_text().splitlines() if (line := json.loads(text))["event"] == "audit-log"
        ]
        heads = [(line["log"], line["lines"], line["head"] or None) for line in said]
        assert heads[:2] == [("identities", 0, None), ("versions", 0, None)], "as it began"
        assert heads[2:] == [(log["log"], log["lines"], log["head"]) for log in found["logs"]], "as it ended"
    finally:
        learner.close()
