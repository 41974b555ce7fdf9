import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from global_learner.errors import EvidenceRefused
from global_learner.rollout.evidence_store import (
    MOST_BLOCKS,
    MOST_BLOCKS_A_CALL,
    block_json,
    block_of,
    check_assigned,
    checked_blocks,
    checked_shadow,
)
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.rollout_assignment import AssignmentRole, RolloutAssignment, candidate_acts

SOUND: dict[str, Any] = {"number": 2, "jobs": 4.0, "usual_jobs": 5.0, "decisions": 9, "end_seconds": 60.0}
DUTY = RolloutAssignment(1, AssignmentRole.ALTERNATING, 2, 77, 7200.0, 2400.0)


@given(st.integers(0, MOST_BLOCKS - 1), st.floats(0.0, 1e6), st.booleans(), st.floats(0.0, 1e6))
def test_a_block_is_kept_as_it_came(number: int, jobs: float, twin: bool, priced: float) -> None:
    message = pb.SwitchbackBlock(**{**SOUND, "number": number, "jobs": jobs}, has_twin=twin, twin_priced=priced)
    (block,) = checked_blocks([message])
    assert (block.number, block.jobs, block.twin is not None) == (number, jobs, twin)
    assert block_of(block_json(block)) == block


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"number": MOST_BLOCKS}, "out-of-order"),
        ({"jobs": -1.0}, "out-of-range: block 2: jobs is -1"),
        ({"jobs": math.nan}, "jobs is nan"),
        ({"usual_jobs": 0.0}, "usual_jobs is 0"),
        ({"arrivals": math.inf}, "arrivals is inf"),
        ({"guard_share": 1.1}, "guard_share is 1.1"),
        ({"latency_p99_seconds": -0.1}, "latency_p99_seconds"),
        ({"begin_seconds": 61.0}, "end_seconds is 60"),
        ({"has_twin": True, "twin_candidate": math.nan}, "twin_candidate is nan"),
    ],
)
def test_a_block_that_cannot_have_been_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(EvidenceRefused, match=said):
        checked_blocks([pb.SwitchbackBlock(**{**SOUND, **changed})])


def test_numbers_rise_and_a_call_is_bounded() -> None:
    for numbers in ([1, 0], [1, 1]):
        with pytest.raises(EvidenceRefused, match="out-of-order"):
            checked_blocks([pb.SwitchbackBlock(**{**SOUND, "number": number}) for number in numbers])
    many = [pb.SwitchbackBlock(**{**SOUND, "number": number}) for number in range(MOST_BLOCKS_A_CALL + 1)]
    with pytest.raises(EvidenceRefused, match="too-many: 65 blocks"):
        checked_blocks(many)
    assert len(checked_blocks(many[:-1])) == MOST_BLOCKS_A_CALL
    assert [block.number for block in checked_blocks([many[0], many[7]])] == [0, 7]


@given(st.integers(0, MOST_BLOCKS - 1), st.booleans())
def test_the_version_that_acted_is_the_coins(number: int, candidate: bool) -> None:
    blocks = checked_blocks([pb.SwitchbackBlock(**{**SOUND, "number": number}, candidate=candidate)])
    if candidate is candidate_acts(DUTY.seed, "north", number):
        check_assigned(blocks, "north", DUTY)
    else:
        with pytest.raises(EvidenceRefused, match="wrong-coin"):
            check_assigned(blocks, "north", DUTY)


def test_a_cluster_that_only_shadows_has_no_blocks() -> None:
    shadow = RolloutAssignment(1, AssignmentRole.SHADOW, 2, 77, 7200.0, 2400.0)
    check_assigned((), "north", shadow)
    with pytest.raises(EvidenceRefused, match="not-asked"):
        check_assigned(checked_blocks([pb.SwitchbackBlock(**SOUND)]), "north", shadow)


@pytest.mark.parametrize(
    "changed",
    [
        {"agreed": 11},
        {"failed": 11},
        {"agreed": 6, "failed": 6},
        {"candidate_interventions": 11},
        {"believed_gain": math.nan},
        {"believed_gain": 101.0},
        {"candidate_latency_p99_seconds": -1.0},
        {"decisions": 2**63},
    ],
)
def test_sums_that_cannot_be_are_refused(changed: dict[str, Any]) -> None:
    assert checked_shadow(pb.ShadowSums(decisions=10, agreed=9, failed=1)).agreed == 9
    with pytest.raises(EvidenceRefused, match="out-of-range"):
        checked_shadow(pb.ShadowSums(**{"decisions": 10, **changed}))
