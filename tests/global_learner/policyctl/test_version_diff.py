"""What `policyctl version diff` says."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learner_makers import SPEC, policy
from rich.console import Console, Group

from foundation.tables import FactSheet, FittedTable
from global_learner.policyctl.version_diff import diff_table, difference, distances
from policy_net.domain import JobKind
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import PolicySpec, SetSpec
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.set_policy.residual import initial_residual

OTHER_SPEC = PolicySpec(jobs_per_batch=2, type_columns=1, hidden=(2,))


def version(number: int, score: pb.ReplayScore | None = None, spec: PolicySpec = SPEC, **card) -> pb.ShowVersionReply:
    shown = pb.VersionCard(version=number, score=score or pb.ReplayScore(state="waiting"), **card)
    return pb.ShowVersionReply(card=shown, spec_json=spec.to_json())


def score(over: float, decisions, digest: str = "a" * 64) -> pb.ReplayScore:
    result = pb.ReplayResult(replay="crowded", avg_jct_seconds=100 * over, baseline_jct_seconds={"drf": 100})
    return pb.ReplayScore(
        state="scored",
        replay_set="fixed-1",
        replay_set_digest=digest,
        over={"drf": over},
        replays=[result],
        decisions=decisions,
    )


def test_distances_are_of_each_layer_and_of_all_weights() -> None:
    one = policy()
    other = PolicyFile(SPEC, one.weights.copy())
    other.weights[0] += 3.0
    other.weights[1] -= 4.0
    found = difference(version(1), version(2), one, other)["weights"]
    assert found["all"]["l2"] == pytest.approx(5.0, rel=1e-6)
    assert found["all"]["max"] == pytest.approx(4.0, rel=1e-6)
    first, *rest = found["layers"].values()
    assert first["l2"] == pytest.approx(5.0, rel=1e-6)
    assert all((layer["l2"], layer["max"]) == (0.0, 0.0) for layer in rest)
    assert set(found["layers"]) == {name for name, _ in SPEC.layout()}


def rows(*entries: tuple[str, int, float]) -> tuple[SpeedStatistic, ...]:
    return tuple(SpeedStatistic(name, JobKind.PS, 1, workers, speed, 4) for name, workers, speed in entries)


def believing(*entries: tuple[str, int, float]) -> PolicyFile:
    spec = SetSpec()
    return PolicyFile(spec, initial_residual(spec, 0), {}, rows(*entries))


def test_beliefs_say_by_type_what_moved_and_how_far_the_furthest_first() -> None:
    one = believing(("a", 1, 1.0), ("a", 2, 2.0), ("b", 1, 1.0), ("still", 1, 3.0), ("gone", 1, 1.0))
    other = believing(("a", 1, 1.0), ("a", 2, 2.5), ("b", 1, 0.0), ("still", 1, 3.001), ("new", 1, 1.0))
    facts = difference(version(1), version(2), one, other)
    beliefs = facts["beliefs"]
    assert (beliefs["splits"], beliefs["moved"]) == ([5, 5], 2)
    assert [(entry["job_type"], entry["splits"], entry["moved"]) for entry in beliefs["types"]] == [
        ("b", [1, 1], 1),
        ("a", [2, 2], 1),
        ("gone", [1, 0], 0),
        ("new", [0, 1], 0),
    ]
    b, a, *_ = beliefs["types"]
    assert b["largest_factor"] == pytest.approx(math.exp(-1.0))
    assert (a["median_factor"], a["largest_factor"]) == pytest.approx((math.exp(0.25), math.exp(0.5)))
    console = Console(width=200)
    with console.capture() as shown:
        console.print(diff_table(facts))
    rows = [line.split() for line in shown.get().splitlines()]
    assert ["a", "2", "→", "2", "1", "×", "1.28", "×", "1.65"] in rows
    assert ["gone", "1", "→", "0", "0", "gone", "–"] in rows
    assert json.loads(json.dumps(beliefs)) == beliefs
    assert difference(version(1), version(2), one, None)["beliefs"] == {"reason": "a policy file is no longer kept"}


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=20), st.floats(0.125, 8.0, width=32))
def test_the_cosine_knows_direction_only_and_of_nothing_there_is_none(values, factor) -> None:
    one = np.array(values, np.float32)
    found = distances(one, one * np.float32(factor))
    norm = float(np.linalg.norm(one.astype(np.float64)))
    if norm > 1e-3:
        assert found["cosine"] == pytest.approx(1.0, abs=1e-5)
        assert distances(one, -one)["cosine"] == pytest.approx(-1.0, abs=1e-5)
    assert distances(np.zeros_like(one), one)["cosine"] is None


def test_scores_and_decisions_are_compared_on_the_same_replays_only() -> None:
    one, other = version(3, score(0.9, [1, 2, 3, 4])), version(7, score(0.8, [1, 2, 9, 9]))
    found = difference(one, other, None, None)
    assert found["scores"]["over"] == {"drf": [0.9, 0.8]}
    assert found["scores"]["avg_jct_seconds"] == {"crowded": [90.0, 80.0]}
    assert found["decisions"] == {"replay_set": "fixed-1", "states": 4, "differing": 2, "share": 0.5}
    assert found["weights"] == {"reason": "a policy file is no longer kept"}
    apart = difference(one, version(7, score(0.8, [1], "b" * 64)), None, None)
    assert "different replays" in apart["scores"]["reason"]
    assert "different replays" in apart["decisions"]["reason"]
    waiting = difference(one, version(8), None, None)
    assert waiting["scores"] == waiting["decisions"] == {"reason": "not both have a score"}


def test_cards_and_specs_say_only_what_differs() -> None:
    one = version(3, head_step=10, updates=5)
    other = version(7, spec=OTHER_SPEC, head_step=20, updates=5)
    found = difference(one, other, policy(), policy(OTHER_SPEC))
    assert found["card"] == {"head_step": [10, 20]}
    assert found["spec"] == {"jobs_per_batch": [1, 2]}
    assert found["weights"] == {"reason": "the specs have other layers"}
    assert json.loads(json.dumps(found)) == found
    same = difference(one, one, policy(), policy())
    assert (same["card"], same["spec"], same["weights"]["all"]["l2"]) == ({}, {}, 0.0)


def test_the_tables_have_a_row_a_difference() -> None:
    one, other = version(3, score(0.9, [1, 2])), version(7, score(0.8, [1, 3]), head_step=4)
    sheet, layers, scores = parts_of(diff_table(difference(one, other, policy(), policy(seed=1))))
    assert isinstance(sheet, FactSheet)
    assert sheet.facts == [
        ("head step", "0 → 4"),
        ("decisions that differ", "1 of 2 states of fixed-1 (50%)"),
    ]
    assert isinstance(layers, FittedTable)
    assert [row[0] for row in layers.rows] == ["all of them", *(name for name, _ in SPEC.layout())]
    assert isinstance(scores, FittedTable)
    assert scores.rows == [("over drf", "-10.0%", "-20.0%"), ("of crowded", "90 s", "80 s")]
    (only,) = parts_of(diff_table(difference(version(1), version(2), None, None)))
    assert isinstance(only, FactSheet)
    assert [label for label, _ in only.facts] == ["weights", "scores"]


def parts_of(difference: Group) -> list[object]:
    return [part for part in difference.renderables if part]
