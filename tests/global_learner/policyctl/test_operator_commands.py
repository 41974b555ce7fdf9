"""`policyctl` as an operator types it, against a real learner: assign, pin, reset, look back."""

import json
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from learner_makers import update
from learner_process import LearnerProcess

from foundation.command_line import run
from global_learner.errors import BadLearnerConfig
from global_learner.policyctl import cli as policyctl
from global_learner.policyctl.options import moment_of
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.wire import push_request


@pytest.mark.heavy
def test_an_operator_moves_the_fleet_to_a_version_and_the_head_back(  # noqa: PLR0915  (one story)
    tmp_path: Path, capsys, monkeypatch
) -> None:
    learner = LearnerProcess(tmp_path, publish={"every_steps": 1})
    learner.start()
    monkeypatch.setenv("FEDL2_LEARNER", learner.operator_address)

    def typed(*words: str) -> tuple[int, str, str]:
        code = run(policyctl.app, "policyctl", list(words))
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    def asked(*words: str):
        code, out, err = typed(*words, "-o", "json")
        assert (code, err) == (0, "")
        return json.loads(out)

    try:
        with learner.channel() as channel:
            fleet = rpc.FleetStub(channel)
            for cluster in ("north", "south"):
                fleet.Register(pb.RegisterRequest(cluster=cluster), timeout=60)
            for number in (1, 2):
                fleet.Push(push_request(update(number, base_step=number - 1), want_weights=False), timeout=60)
            while len(asked("version", "list")) < 3:
                pass
            assert [card["kept"] for card in asked("version", "list")] == [True, True, True]

            (done,) = asked("assign", "v3", "--cluster", "south")
            assert (done["from_version"], done["to_version"], done["held"], done["changed"]) == (1, 3, True, True)
            heartbeat = pb.HeartbeatRequest(cluster="south", incarnation=1, status=pb.ClusterStatus(acting_version=1))
            assert fleet.Heartbeat(heartbeat, timeout=60).assigned_version == 3
        clusters = {entry["cluster"]: entry for entry in asked("fleet")["clusters"]}
        assert [clusters["south"][key] for key in ("assigned_version", "held", "acting_version")] == [3, True, 1]
        _is_shown_by_name(asked, typed)

        for refused, says in (
            (("assign", "v9", "--cluster", "south"), "there is no version v9"),
            (("assign", "v2", "--cluster", "nowhere"), "no cluster 'nowhere' is registered, so nothing was changed"),
            (("assign", "v2", "--cluster", "sout"), "so nothing was changed; did you mean south?"),
            (("rollback", "--cluster", "nort"), "so nothing was changed; did you mean north?"),
            (("assign", "v2"), "say whom: --cluster NAME (repeatable), or --all"),
            (("assign", "v2", "--all", "--cluster", "north"), "say whom"),
            (("assign", "v2", "--all"), "add --yes: there is no terminal to ask on"),
            (("assign", "Two", "--all", "--yes"), "'Two' is no version"),
            (("assign", "two", "--all", "--yes"), "no version has the alias 'two' (there are: none yet)"),
            (("version", "alias", "v2", "v7"), "'v7' cannot be an alias"),
            (("version", "unalias", "two"), "no version has the alias 'two'"),
            (("rollback",), "say whom"),
            (("rollback", "--all"), "add --yes: there is no terminal to ask on"),
            (
                ("assign", "v2", "--cluster", "south", "--from", "v1"),
                "not on v1 by now: south on v3; nothing was changed",
            ),
            (("unassign", "--all", "--yes", "--from", "v3"), "not on v3 by now: north on v1; nothing was changed"),
            (("rollback", "--cluster", "south", "--from", "v2"), "not on v2 by now: south on v3"),
            (("rollback", "--cluster", "north"), "on which north acted before v1, so nothing was changed"),
            (("assign", "v2", "--cluster", "north", "--reason", "x" * 501), "the reason is longer than"),
            (("head", "reset", "--to", "v2"), "add --yes"),
            (("head", "reset", "--to", "v9", "--yes"), "there is no version v9"),
            (("version", "pin", "v9"), "there is no version v9"),
            (("version", "note", "v9", "of the new queue"), "there is no version v9"),
            (("version", "note", "v2", "x" * 501), "the note is longer than 500 characters"),
            (("version", "note", "v2", "two\nlines"), "the note has more than one line; give it one"),
            (("version", "note", "v2", "red\x1b[31m"), "has a character that cannot be printed (U+001B)"),
            (("audit", "--since", "yesterday"), "'yesterday' is no moment"),
            (("fleet", "--cluster", "sout"), "no cluster 'sout' is registered; did you mean south?"),
        ):
            code, out, error = typed(*refused)
            assert (code, out, len(error.splitlines())) == (2, "", 1), refused
            assert says in error

        assert [entry["to_version"] for entry in asked("assign", "2", "--all", "--yes")] == [2, 2]
        assert [entry["to_version"] for entry in asked("unassign", "--cluster", "north", "--reason", "a trial")] == [1]
        _goes_back(asked, typed)
        found = asked("version", "diff", "v2", "latest")
        assert (found["from"], found["to"], found["card"]["parent"]) == ("v2", "v3", [1, 2])
        assert found["weights"]["all"]["l2"] > 0.0
        assert found["scores"] == {"reason": "not both have a score"}
        assert [typed("version", "diff", *pair)[0] for pair in (("v2", "v9"), ("v1", "v2"))] == [2, 0]
        assert asked("version", "pin", "v2", "--reason", "for the audit")["changed"] is True
        assert (asked("version", "show", "v2")["pinned"], "v2: for the audit" in typed("audit")[1]) == (True, True)
        _is_noted_and_called(asked, typed)
        done = asked("head", "reset", "--to", "v2", "--yes", "--from", "2")
        assert (done["from_step"], done["head_step"], done["moments"], done["changed"]) == (2, 3, "kept", True)
        assert asked("head", "reset", "--to", "v2", "--yes")["changed"] is False
        _is_compared_with_the_latest_reset(typed)
        actions = [(line["action"], line["subject"]) for line in asked("audit")]
        assert actions == [
            ("assigned", "south"),
            ("assigned", "north"),
            ("assigned", "south"),
            ("unassigned", "north"),
            ("rolled-back", "south"),
            ("pinned", "v2"),
            ("unpinned", "v2"),
            ("noted", "v2"),
            ("noted", "v2"),
            ("note-removed", "v2"),
            ("noted", "v1"),
            ("alias-given", "v2"),
            ("alias-given", "v1"),
            ("alias-removed", "v1"),
            ("alias-given", "v3"),
            ("head-reset", "v2"),
        ]
        _is_on_the_page(asked, tmp_path / "report", learner.http_port)
        assert len(asked("audit", "--since", "1h")) == len(actions)
        for words in (
            ("version", "list"),
            ("version", "show", "latest"),
            ("audit",),
            ("assign", "v2", "--cluster", "north"),
        ):
            assert typed(*words)[0] == 0
        assert learner.end() == 0
    finally:
        learner.close()


def _is_noted_and_called(asked: Callable[..., Any], typed: Callable[..., tuple[int, str, str]]) -> None:
    _is_noted(asked, typed)
    _is_called(asked, typed)


def _is_compared_with_the_latest_reset(typed: Callable[..., tuple[int, str, str]]) -> None:
    code, _, error = typed("head", "reset", "--to", "v1", "--yes", "--from", "2")
    assert (code, "the head was reset since you looked: at step 3, and you saw step 2" in error) == (2, True)


def _is_called(asked: Callable[..., Any], typed: Callable[..., tuple[int, str, str]]) -> None:
    """An alias stands for its version wherever one is asked for, and goes to another one only where that is said."""
    assert asked("version", "alias", "v2", "steady") == {
        "alias": "steady",
        "version": 2,
        "from_version": None,
        "changed": True,
    }
    assert asked("version", "show", "steady")["aliases"] == ["steady"]
    assert "steady" in typed("version", "list")[1]
    assert asked("version", "diff", "v1", "steady")["to"] == "v2"
    assert [line["name"] for line in asked("version", "verify", "steady")] == ["v2"]
    assert [entry["to_version"] for entry in asked("assign", "steady", "--cluster", "north", "--dry-run")] == [2]
    code, _, error = typed("version", "alias", "v1", "steady")
    assert (code, "'steady' is v2's: `policyctl version alias v1 steady --move`" in error) == (2, True)
    moved = asked("version", "alias", "v1", "steady", "--move", "--reason", "calmer")
    assert (moved["from_version"], moved["version"]) == (2, 1)
    assert "did you mean steady?" in typed("version", "show", "stedy")[2]
    assert asked("version", "unalias", "steady")["from_version"] == 1
    assert typed("version", "show", "steady")[0] == 2
    assert asked("version", "alias", "latest", "newest-of-today")["changed"] is True
    assert typed("version", "tag", "v2", "x")[2].count("policyctl version alias") == 1


def _is_noted(asked: Callable[..., Any], typed: Callable[..., tuple[int, str, str]]) -> None:
    """A note stands where versions are looked at, the newest one alone; the log has them all."""
    assert asked("version", "unpin", "v2")["changed"] is True
    said = asked("version", "note", "v2", "of the new queue")
    assert (said["changed"], said["note"]["text"], said["note"]["actor"]) == (True, "of the new queue", "operator")
    assert asked("version", "note", "v2", "of the new queue")["changed"] is False
    assert asked("version", "note", "v2", "of the old queue")["changed"] is True
    assert asked("version", "show", "v2")["note"]["text"] == "of the old queue"
    assert {card["name"]: card["note"] and card["note"]["text"] for card in asked("version", "list")} == {
        "v1": None,
        "v2": "of the old queue",
        "v3": None,
    }
    assert "of the old queue" in typed("version", "list", "-o", "csv")[1]
    assert "of the old queue (" in typed("version", "show", "v2")[1]
    assert (asked("version", "note", "v2", "")["note"], asked("version", "show", "v2")["note"]) == (None, None)
    assert asked("version", "note", "1", " the beginning ")["note"]["text"] == "the beginning"
    assert "v2: of the new queue" in typed("audit")[1]


def _is_shown_by_name(asked: Callable[..., Any], typed: Callable[..., tuple[int, str, str]]) -> None:
    shown = typed("fleet")[1]
    assert "held v3" in shown
    assert shown.startswith("unix:"), "the head line says which learner it is about"
    assert [entry["cluster"] for entry in asked("fleet", "--cluster", "south")["clusters"]] == ["south"]
    assert [card["version"] for card in asked("version", "list", "--limit", "2")] == [2, 3]
    (said,) = asked("assign", "v2", "--cluster", "north", "--dry-run")
    assert (said["to_version"], said["dry_run"]) == (2, True)
    assert {entry["cluster"]: entry["assigned_version"] for entry in asked("fleet")["clusters"]}["north"] == 1
    assert "nothing was changed" in typed("unassign", "--all", "--dry-run")[1]


def _is_on_the_page(asked: Callable[..., Any], out: Path, http_port: int) -> None:
    """What was done stands among the report's events, who and why; on the learner's own page without either."""
    asked("report", "--out", str(out))
    inlined = (out / "index.html").read_text().partition('id="data">')[2].partition("</script>")[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/report.json", timeout=60) as answer:
        live = answer.read().decode()

    def acts(content: str) -> list[tuple[str | None, str, str]]:
        entries = [event for event in json.loads(content)["events"]["entries"] if "published" not in event["text"]]
        return [(event["actor"], event["text"], event["why"]) for event in reversed(entries)][1:]  # v1 is there

    reported = acts(inlined)
    assert reported[3:6] == [
        ("operator", "took the assignment from north: v1 in place of v2", "a trial"),
        ("operator", "took south back from v2 to v3", "v2 is slow"),
        ("operator", "pinned v2", "for the audit"),
    ]
    assert reported[-1] == ("operator", "reset the head to v2, from step 2", "")
    assert acts(live) == [(None, f"an operator {text}", "") for _, text, _ in reported]
    assert "v2 is slow" not in live
    assert asked("audit", "--since", "2200-01-01") == []


def _goes_back(asked, typed) -> None:
    """South, which came from v3 to v2, and back."""
    going = ("rollback", "--cluster", "south", "--reason", "v2 is slow")
    (planned,) = asked(*going, "--dry-run")
    assert (planned["from_version"], planned["to_version"], planned["dry_run"]) == (2, 3, True)
    assert "nothing was changed: --dry-run" in typed(*going, "--dry-run")[1]
    assert asked(*going) == [{**planned, "dry_run": False}]
    assert "v2 to v3: v2 is slow" in typed("audit")[1]
    # Whoever meant the same step at the same time is told, and takes no second one.
    code, _, error = typed(*going)
    assert code == 2
    assert re.search(
        r"south: operator took it back \d+ s ago \(v2 to v3: v2 is slow\), so nothing was changed; .* add --from v3",
        error,
    )
    assert [entry["to_version"] for entry in asked(*going, "--from", "v3", "--dry-run")] == [1]
    assert "v2 to v1: a trial" in typed("audit")[1]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30m", 1e6 - 1800),
        ("7d", 1e6 - 7 * 86_400),
        ("1970-01-02", 86_400.0),
        ("1970-01-01T01:00", 3600.0),
        ("1970-01-01T01:00+01:00", 0.0),
    ],
)
def test_moments_as_people_type_them(text: str, seconds: float) -> None:
    assert moment_of(text, 1e6) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1w", "99999999d", "2026-13-01", "٣d"])
def test_what_is_no_moment_is_said(text: str) -> None:
    with pytest.raises(BadLearnerConfig, match="is no moment"):
        moment_of(text, 1e6)


@pytest.mark.heavy
@pytest.mark.parametrize("auto_assign", [True, False])
def test_that_new_versions_act_at_once_is_said_at_every_start(tmp_path: Path, auto_assign: bool) -> None:
    learner = LearnerProcess(tmp_path, publish={"auto_assign": auto_assign})
    try:
        for _ in range(2):
            learner.start()
            with urllib.request.urlopen(f"http://127.0.0.1:{learner.http_port}/metrics", timeout=60) as answer:
                page = answer.read().decode()
            assert f"fedl2_learner_auto_assign_enabled_count {float(auto_assign)}" in page
            assert learner.end() == 0
    finally:
        learner.close()
    lines = [json.loads(line) for line in learner.log.read_text().splitlines()]
    warnings = [line for line in lines if line["event"] == "auto-assign-enabled"]
    assert [line["level"] for line in warnings] == ["warning", "warning"] if auto_assign else warnings == []
