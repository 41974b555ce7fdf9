import math

import pytest

from global_learner.rollout.judging import judge_shadow
from global_learner.rollout.plan import VerdictSettings
from global_learner.rollout.verdicts.evidence import Shadowed
from global_learner.rollout.verdicts.verdict import StageOutcome

SETTINGS = VerdictSettings()
GOOD = Shadowed(100, agreed=90, incumbent_interventions=5, candidate_interventions=6)
SILENT = Shadowed(100, failed=2)
GUARDED = Shadowed(100, incumbent_interventions=5, candidate_interventions=8)
CLUSTERS = ("east", "north", "south")


@pytest.mark.parametrize("bad", [SILENT, GUARDED])
def test_two_clusters_fail_a_version_at_once_and_one_is_held(bad: Shadowed) -> None:
    one = {"east": bad, "north": GOOD, "south": GOOD}
    verdict = judge_shadow(one, CLUSTERS, SETTINGS, time_over=False)
    assert (verdict.outcome, verdict.held) == (StageOutcome.WAIT, ("east",))
    assert judge_shadow(one, CLUSTERS, SETTINGS, time_over=True).outcome is StageOutcome.PASS
    failed = judge_shadow({**one, "north": bad}, CLUSTERS, SETTINGS, time_over=False)
    assert failed.outcome is StageOutcome.FAIL
    assert [reason.partition(":")[0] for reason in failed.reasons] == ["east", "north"]


def test_it_passes_only_when_its_hours_are_over_and_says_how_alike_they_are() -> None:
    good = dict.fromkeys(CLUSTERS, GOOD)
    assert judge_shadow(good, CLUSTERS, SETTINGS, time_over=False).outcome is StageOutcome.WAIT
    passed = judge_shadow(good, CLUSTERS, SETTINGS, time_over=True)
    said = "3 clusters, 300 decisions made twice: in 90.0% of them every job got the same"
    assert (passed.outcome, passed.reasons) == (
        StageOutcome.PASS,
        (f"{said}; believed progress of all jobs +0.0%, + is faster",),
    )


def test_where_no_decision_is_alike_it_says_how_near_they_are() -> None:
    unlike = {
        "east": Shadowed(100, believed_gain=math.log(1.01)),
        "north": Shadowed(300, believed_gain=math.log(0.99)),
    }
    (said,) = judge_shadow(unlike, CLUSTERS, SETTINGS, time_over=True).reasons
    assert "400 decisions made twice: in 0.0% of them every job got the same" in said
    assert "believed progress of all jobs -0.5%" in said, "each decision weighs the same"


def test_where_fewer_than_two_said_enough_an_operator_is_asked() -> None:
    few = {"east": GOOD, "north": Shadowed(19)}
    asked = judge_shadow(few, CLUSTERS, SETTINGS, time_over=True)
    assert asked.outcome is StageOutcome.INCONCLUSIVE
    assert asked.reasons == ("1 clusters computed 20 decisions twice; it takes 2",)
    away = judge_shadow({"east": GOOD, "north": GOOD}, ("east",), SETTINGS, time_over=True)
    assert away.outcome is StageOutcome.INCONCLUSIVE


def test_what_fails_in_too_few_decisions_says_nothing() -> None:
    few = dict.fromkeys(CLUSTERS, Shadowed(19, failed=19))
    assert judge_shadow(few, CLUSTERS, SETTINGS, time_over=False) == judge_shadow({}, (), SETTINGS, time_over=False)
