import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_net.exchange.rollout_assignment import AssignmentRole, RolloutAssignment, candidate_acts, candidate_first

DUTY = RolloutAssignment(3, AssignmentRole.ALTERNATING, 12, 7, 7200.0, 2400.0)


@given(
    st.builds(
        RolloutAssignment,
        st.integers(1, 2**63 - 1),
        st.sampled_from(AssignmentRole),
        st.integers(1, 2**63 - 1),
        st.integers(0, 2**63 - 1),
        st.floats(10.0, 86400.0),
        st.floats(0.0, 9.0),
    )
)
def test_a_duty_comes_back_as_it_went(rollout_assignment: RolloutAssignment) -> None:
    assert RolloutAssignment.of(rollout_assignment.message()) == rollout_assignment
    assert RolloutAssignment.from_json(json.loads(json.dumps(rollout_assignment.to_json()))) == rollout_assignment


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rollout": 0}, "rollout is 0"),
        ({"beside_version": 0}, "beside_version is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"block_seconds": 0.0}, "block_seconds is 0.0"),
        ({"block_seconds": float("nan")}, "block_seconds is nan"),
        ({"block_seconds": 1e9}, "30 days at most"),
        ({"washout_seconds": 7200.0}, "below block_seconds"),
        ({"washout_seconds": float("nan")}, "washout_seconds is nan"),
    ],
)
def test_what_no_learner_asks_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(DUTY, **changed)


@pytest.mark.parametrize("name", list(DUTY.to_json()))
@pytest.mark.parametrize("value", [None, "much", [], True])
def test_a_duty_with_one_damaged_value_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"is no|not a valid"):
        RolloutAssignment.from_json(DUTY.to_json() | {name: value})


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="no object"):
        RolloutAssignment.from_json([1])


@given(st.integers(0, 2**31), st.text(max_size=20), st.integers(0, 10_000))
def test_both_versions_act_once_in_every_pair_and_everybody_throws_the_same_coin(
    seed: int, cluster: str, pair: int
) -> None:
    assert candidate_acts(seed, cluster, 2 * pair) is not candidate_acts(seed, cluster, 2 * pair + 1)
    assert candidate_acts(seed, cluster, 2 * pair) is candidate_first(seed, cluster, pair)


def test_the_coin_is_fair_and_clusters_have_their_own() -> None:
    throws = [[candidate_first(3, f"cluster-{number}", pair) for pair in range(500)] for number in range(8)]
    for own in throws:
        assert 200 < sum(own) < 300
    assert 200 < sum(one == other for one, other in zip(throws[0], throws[1], strict=True)) < 300
