"""What people are shown of rollouts: bounded, and without losing what changed something."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from rollout_makers import started

from global_learner.rollout.evidence_store import KeptEvent, KeptVerdict
from global_learner.rollout.rollout_messages import Overview, thinned, thinned_verdicts
from global_learner.rollout.rollout_store import RolloutRecord

OUTCOMES = st.sampled_from(["wait", "pass", "fail", "inconclusive"])


def verdict(number: int, outcome: str = "wait", stage: int = 2) -> KeptVerdict:
    return KeptVerdict(float(number), stage, outcome, 0.0, None, None, number, (), ())


@given(st.lists(st.tuples(OUTCOMES, st.integers(0, 4)), max_size=80), st.integers(2, 30))
def test_thinned_verdicts_are_few_in_order_and_begin_and_end_as_all_of_them(
    said: list[tuple[str, int]], most: int
) -> None:
    verdicts = [verdict(number, outcome, stage) for number, (outcome, stage) in enumerate(said)]
    kept = thinned_verdicts(verdicts, most)
    assert len(kept) == min(len(verdicts), most)
    assert kept == sorted(set(kept), key=verdicts.index)
    assert kept[-1:] == verdicts[-1:]


def test_verdicts_that_change_something_are_kept_before_others() -> None:
    verdicts = [verdict(number, stage=number // 200) for number in range(400)]
    verdicts += [verdict(400, "pass", 1)]
    kept = thinned_verdicts(verdicts, 40)
    assert {0, 199, 200, 399, 400} <= {entry.pairs for entry in kept}
    gaps = [after.pairs - before.pairs for before, after in pairwise(kept)]
    assert max(gaps) <= 2 * 400 // 35 + 1  # the others lie evenly between


def test_of_events_the_line_of_every_cluster_is_left_out_but_not_of_the_held() -> None:
    lines = (
        "rollout-verdict rollout 1: stage canary: wait; ",
        "rollout-assigned north: v1 beside v2 (alternating) to v1 (held)",
        "rollout-assigned south: v1 to v1 beside v2 (alternating)",
    )
    event = KeptEvent(3, 1.0, "learner", "verdict", "wait", lines)
    shown = thinned(Overview(RolloutRecord(started(), 7, "ada", ""), {}, {}, [], [event]))
    assert shown.events[0].came_of_it == lines[:2]
