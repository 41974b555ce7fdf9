from datetime import UTC, datetime
from pathlib import Path

import pytest

from global_learner.errors import BadRequest
from global_learner.rollout.plan import RolloutPlan, check_names, read_plan
from policy_net.errors import BadInput

GOOD_QUERY = {
    "name": "failed",
    "address": "http://here:9090/prometheus/",
    "query": """'sum(failed{cluster=~"$clusters"})'""",
    "at_most": "0.5",
}


def _flow(query: dict[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in query.items() if value) + "}"


ONE_QUERY = _flow(GOOD_QUERY | {"stages": "[canary]"})


def _read(tmp_path: Path, text: str) -> RolloutPlan:
    path = tmp_path / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    return read_plan(path)


def test_what_a_plan_does_not_say_has_a_default(tmp_path: Path) -> None:
    plan = _read(tmp_path, "pinned: [north]\n")
    assert [stage.kind for stage in plan.stages] == ["gate", "shadow", "canary", "wave", "fleet"]
    assert plan.pinned == ("north",)
    assert plan.verdict.rule.margin == pytest.approx(0.03)


def test_a_whole_plan_is_read(tmp_path: Path) -> None:
    plan = _read(
        tmp_path,
        """
stages:
  - {kind: gate}
  - {kind: canary, clusters: [north, south], days: 7}
  - {kind: wave, share: 0.25}
  - {kind: wave, share: 0.5}
  - {kind: fleet, days: 30}
freeze:
  - {kind: dates, begin: 2026-12-20T00:00:00Z, end: 2027-01-03T00:00:00Z}
  - {kind: weekly, days: [fri, sat], from_hour: 16, hours: 40}
verdict: {margin_percent: 2, false_alarm_percent: 1}
""",
    )
    assert [stage.kind for stage in plan.stages] == ["gate", "canary", "wave", "wave", "fleet"]
    assert plan.verdict.rule.false_alarm == pytest.approx(0.01)


def test_a_stage_that_is_none_is_not_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"use one of 'gate', 'shadow', 'canary', 'wave', 'fleet'$"):
        _read(tmp_path, "stages: [{kind: gat}]")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stages: [{kind: blue-green}, {kind: fleet}]", "use one of 'gate', 'shadow', 'canary', 'wave', 'fleet'"),
        ("stages: [{kind: fleet}, {kind: canary}]", "put them in the order gate, shadow, canary, wave, fleet"),
        ("stages: [{kind: gate}, {kind: gate}, {kind: fleet}]", "name gate 2 times"),
        ("stages: [{kind: gate}]", "end with fleet"),
        ("stages: []", "must have at least 1 item"),
        ("stages: [{kind: wave, share: 0.5}, {kind: wave, share: 0.25}, {kind: fleet}]", "be larger than the one"),
        ("stages: [{kind: wave, share: 2}, {kind: fleet}]", "must be less than or equal to 1"),
        ("stages: [{kind: canary, cluster: [a]}, {kind: fleet}]", "unknown setting stages.0.cluster"),
        ("stages: [{kind: canary, clusters: [a]}, {kind: fleet}]\npinned: [a]", "a canary and pinned at once"),
        ("freeze: [{kind: dates, begin: 2027-01-03T00:00:00Z, end: 2026-12-20T00:00:00Z}]", "exchange begin and end"),
        ("freeze: [{kind: dates, begin: 2026-12-20T00:00:00, end: 2027-12-20T00:00:00Z}]", "freeze.0.begin"),
        ("freeze: [{kind: weekly, days: [caturday]}]", "freeze.0.days.0"),
        ("verdict: {margin_percent: 0}", "verdict.margin_percent"),
        ("verdict: {margin_percent: .nan}", "verdict.margin_percent"),
        ("pinned: 3", "pinned"),
        ("queries: [3]", "queries.0"),
        (f"queries: [{ONE_QUERY}, {ONE_QUERY}]", "queries name failed 2 times"),
        (
            f"queries: [{ONE_QUERY}]\nstages: [{{kind: gate}}, {{kind: shadow}}, {{kind: fleet}}]",
            "query failed is of none",
        ),
        ("- gate", "holds no settings"),
    ],
)
def test_a_wrong_plan_is_one_clear_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        _read(tmp_path, text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "plan.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"address": "ftp://here"}, "queries.0.address: 'ftp://here' is no server's address; write http://"),
        ({"address": "here:9090"}, "is no server's address"),
        ({"address": "http://"}, "is no server's address"),
        ({"address": "http://here:99999"}, "is no server's address"),
        ({"address": "http://ada:secret@here"}, "is no server's address"),
        ({"address": '"http://here/?q=1"'}, "is no server's address"),
        ({"address": '"http://he re"'}, "is no server's address"),
        ({"address": '"http://[::1"'}, "is no server's address"),
        ({"address": ""}, "queries.0.address is missing"),
        ({"query": '""'}, "queries.0.query"),
        ({"query": '"  "'}, "its PromQL is empty"),
        ({"query": f"'{'up' * 2001}'"}, "must have at most 4000 characters"),
        ({"query": """'up{cluster="$clusters"}'"""}, "only where =~ and quotes are around it"),
        ({"query": """'up{cluster=~"$cluster"}'"""}, "only $clusters is filled in"),
        ({"at_most": ""}, "query failed has no bound"),
        ({"at_most": ".nan"}, "queries.0.at_most"),
        ({"at_most": ".inf"}, "queries.0: at_most = inf"),
        ({"at_most": "many"}, "queries.0.at_most"),
        ({"at_least": "0.6"}, "at_least is above at_most"),
        ({"hold_minutes": "1"}, "1 minutes are too short for 3 answers"),
        ({"hold_minutes": "0"}, "queries.0.hold_minutes"),
        ({"every_seconds": "0"}, "queries.0.every_seconds"),
        ({"name": "Failed!"}, "queries.0.name"),
        ({"against": "nobody"}, "queries.0.against"),
        ({"against": "incumbent", "query": "up"}, "its number is the same for both versions"),
        ({"against": "incumbent", "at_most": "-1"}, "use 0 or more"),
        ({"against": "incumbent", "stages": "[canary, fleet]"}, "in stage fleet no cluster is left"),
        ({"stages": "[gate]"}, "queries.0.stages.0"),
        ({"bound": "3"}, "unknown setting queries.0.bound"),
    ],
)
def test_a_wrong_query_is_one_clear_line(tmp_path: Path, bad: dict[str, str], said: str) -> None:
    with pytest.raises(BadInput) as caught:
        _read(tmp_path, f"queries: [{_flow(GOOD_QUERY | bad)}]")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "plan.yaml" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_query_is_read_and_its_stages_have_a_default(tmp_path: Path) -> None:
    (query,) = _read(tmp_path, f"queries: [{ONE_QUERY}]").queries
    assert (query.address, query.at_most, query.at_least) == ("http://here:9090/prometheus", 0.5, None)
    assert [kind for kind in ("gate", "shadow", "canary", "wave", "fleet") if query.is_of(kind)] == ["canary"]
    usual = query.model_copy(update={"stages": ()})
    assert [kind for kind in ("gate", "shadow", "canary", "wave", "fleet") if usual.is_of(kind)] == [
        "canary",
        "wave",
        "fleet",
    ]
    plan = _read(tmp_path, f"queries: [{ONE_QUERY}]")
    assert RolloutPlan.model_validate_json(plan.model_dump_json()) == plan


def test_a_cluster_that_is_not_enrolled_is_named_with_the_one_that_was_meant(tmp_path: Path) -> None:
    plan = _read(tmp_path, "stages: [{kind: canary, clusters: [nort]}, {kind: fleet}]")
    with pytest.raises(BadRequest, match="canary names cluster 'nort', which is not enrolled; did you mean 'north'"):
        check_names(plan, ["north", "south"])
    with pytest.raises(BadRequest, match="pinned names cluster 'x', which is not enrolled; the fleet has north"):
        check_names(RolloutPlan(pinned=("x",)), ["north"])
    check_names(plan, ["nort"])


def _at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_nothing_begins_within_a_window(tmp_path: Path) -> None:
    # 2026-12-11 is a Friday.
    plan = _read(
        tmp_path,
        """
freeze:
  - {kind: dates, begin: 2026-12-20T00:00:00Z, end: 2027-01-03T00:00:00Z}
  - {kind: weekly, days: [fri], from_hour: 16, hours: 40}
""",
    )
    assert plan.freeze_end(_at("2026-12-11T15:59:00")) is None
    assert plan.freeze_end(_at("2026-12-11T16:00:00")) == _at("2026-12-13T08:00:00")
    assert plan.freeze_end(_at("2026-12-13T07:59:59")) == _at("2026-12-13T08:00:00")
    assert plan.freeze_end(_at("2026-12-13T08:00:00")) is None
    # The dates end at the midnight before Sunday 2027-01-03, within the window of the Friday before.
    assert plan.freeze_end(_at("2026-12-24T00:00:00")) == _at("2027-01-03T08:00:00")
    assert RolloutPlan().freeze_end(_at("2026-12-24T00:00:00")) is None


def test_a_window_that_ends_within_another_ends_with_it(tmp_path: Path) -> None:
    plan = _read(
        tmp_path,
        """
freeze:
  - {kind: dates, begin: 2026-12-20T00:00:00Z, end: 2026-12-24T00:00:00Z}
  - {kind: dates, begin: 2026-12-23T00:00:00Z, end: 2026-12-27T00:00:00Z}
""",
    )
    assert plan.freeze_end(_at("2026-12-21T00:00:00")) == _at("2026-12-27T00:00:00")


def test_a_week_without_a_gap_never_ends_and_still_answers() -> None:
    every = {"kind": "weekly", "days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]}
    plan = RolloutPlan.model_validate({"freeze": [every]})
    now = _at("2026-12-21T12:00:00")
    end = plan.freeze_end(now)
    assert end is not None
    assert end > now
