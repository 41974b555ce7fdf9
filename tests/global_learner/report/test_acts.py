"""What people did, among the events of the page: who, to what, and why."""

from typing import Any

import pytest
from report_makers import NOW, report, three

from global_learner.report.content import report_content
from global_learner.report.events import act_events
from policy_net.exchange.generated import fleet_pb2 as pb


def line(action: str, subject: str, detail: str = "", actor: str = "ada", at: float = NOW) -> pb.AuditEntry:
    return pb.AuditEntry(unix_seconds=at, actor=actor, action=action, subject=subject, detail=detail)


def said(*lines: pb.AuditEntry, named: bool = True) -> list[tuple[str | None, str, str]]:
    return [(act["actor"], act["text"], act["why"]) for act in act_events(lines, {7}, named)]


@pytest.mark.parametrize(
    ("entry", "text", "why"),
    [
        (
            line("rolled-back", "north", "v2 to v1: too slow: by far"),
            "took north back from v2 to v1",
            "too slow: by far",
        ),
        (line("assigned", "north", "v1 to v2"), "assigned v2 to north, in place of v1", ""),
        (line("unassigned", "north", "v2 to v1"), "took the assignment from north: v1 in place of v2", ""),
        (line("noted", "v2", "of the new queue"), "noted on v2", "of the new queue"),
        (line("released", "north", "out of quarantine: mended"), "let north out of quarantine", "mended"),
        (line("revoked", "north", "1 certificate, 0 tokens: sold"), "revoked north", "sold"),
        (line("rollout-paused", "rollout 3", "by an operator: a holiday"), "paused rollout 3", "a holiday"),
        (line("rollout-pinned", "rollout 3", "west: theirs"), "pinned west in rollout 3", "theirs"),
    ],
)
def test_an_act_is_told_with_who_did_it_and_why(entry: pb.AuditEntry, text: str, why: str) -> None:
    assert said(entry) == [("ada", text, why)]
    assert said(entry, named=False) == [(None, f"an operator {text}", "")]


def test_what_was_done_to_several_clusters_at_once_is_one_event() -> None:
    names = [f"c{number}" for number in range(9)]
    ((_, text, _),) = said(*[line("assigned", name, "v1 to v2") for name in names])
    assert text == "assigned v2 to c0, c1, c2, c3, c4, c5 and 3 more, in place of v1"


def test_a_reset_has_its_reason_beside_it() -> None:
    reset = line("head-reset", "v2", "from step 9 to v2, now step 10")
    reason = line("head-reset-reason", "v2", "step 10: it learned nonsense", at=NOW + 1)
    assert said(reason, reset) == [("ada", "reset the head to v2, from step 9", "it learned nonsense")]


def test_acts_in_a_rollout_that_the_page_shows_stand_there_once() -> None:
    assert said(line("rollout-paused", "rollout 7", "by an operator")) == []


def test_who_has_a_certificate_is_told_to_those_alone_who_have_one() -> None:
    entry = line("operator-enrolled", "ben", "viewer")
    assert said(entry) == [("ada", "gave ben a certificate", "")]
    assert said(entry, named=False) == []


def test_they_stand_among_the_page_s_events_in_order() -> None:
    acts = [line("noted", "v2", "late", at=NOW - 30.0), line("rolled-back", "north", "v2 to v1", at=NOW - 90.0)]
    entries: list[dict[str, Any]] = report_content(report(three(), versions=3, acts=acts))["events"]["entries"]
    assert [entry["unix_seconds"] for entry in entries if entry["kind"] == "event"] == [
        NOW,
        NOW - 30.0,
        NOW - 60.0,
        NOW - 90.0,
        NOW - 120.0,
    ]
