import re
from dataclasses import replace

import pytest
from verdict_makers import blocks_of

from global_learner.rollout.verdicts.evidence import Score, SwitchbackBlock, TwinSays, pairs_of
from global_learner.rollout.verdicts.gate import Replayed, judge_replays
from global_learner.rollout.verdicts.verdict import (
    ClusterEvidence,
    Rule,
    StageOutcome,
    Verdict,
    alarms_of,
    evidence_of,
    judge,
)

RULE = Rule()
CLUSTERS = [f"cluster-{number}" for number in range(8)]


def _evidence(seed: int, pairs: int, losses: dict[str, float] | None = None, **quality) -> dict[str, ClusterEvidence]:  # type: ignore[no-untyped-def]
    losses = losses or {}
    return {
        name: evidence_of(pairs_of(blocks_of(seed, pairs, name=name, loss=losses.get(name, 0.0), **quality)), RULE)
        for name in CLUSTERS
    }


def _first_verdict(seed: int, losses: dict[str, float] | None = None, most: int = 24, **quality) -> Verdict:  # type: ignore[no-untyped-def]
    """The first word other than wait, looking after every second pair."""
    for pairs in range(2, most + 1, 2):
        verdict = judge(_evidence(seed, pairs, losses, **quality), CLUSTERS, RULE, time_over=pairs >= most)
        if verdict.outcome is not StageOutcome.WAIT:
            return verdict
    raise AssertionError("the last look has to say something")


def test_equal_versions_are_let_pass_and_hardly_ever_fail() -> None:
    outcomes = [_first_verdict(seed).outcome for seed in range(60)]
    assert outcomes.count(StageOutcome.FAIL) <= 3
    assert outcomes.count(StageOutcome.PASS) > 40


@pytest.mark.parametrize("believed", [-0.05, 0.05])
def test_a_twin_that_is_wrong_of_one_version_makes_no_false_alarm(believed: float) -> None:
    outcomes = [_first_verdict(seed, believed_loss=lambda _: believed).outcome for seed in range(40)]
    assert outcomes.count(StageOutcome.FAIL) <= 2


def test_five_percent_worse_is_caught() -> None:
    outcomes = [_first_verdict(seed, dict.fromkeys(CLUSTERS, 0.05)).outcome for seed in range(30)]
    assert outcomes.count(StageOutcome.FAIL) >= 27
    assert outcomes.count(StageOutcome.PASS) == 0


def test_five_percent_better_passes() -> None:
    assert all(_first_verdict(seed, dict.fromkeys(CLUSTERS, -0.05)).outcome is StageOutcome.PASS for seed in range(15))


def test_bad_on_one_cluster_holds_it_and_bad_on_two_fails() -> None:
    better = dict.fromkeys(CLUSTERS, -0.05)
    one = _first_verdict(1, {**better, "cluster-3": 0.5})
    assert one.outcome is StageOutcome.PASS
    late = judge(_evidence(1, 24, {**better, "cluster-3": 0.5}), CLUSTERS, RULE, time_over=True)
    assert (late.outcome, late.held) == (StageOutcome.PASS, ("cluster-3",))
    two = judge(_evidence(1, 24, {**better, "cluster-3": 0.5, "cluster-5": 0.5}), CLUSTERS, RULE, time_over=True)
    assert two.outcome is StageOutcome.FAIL
    assert two.held == ("cluster-3", "cluster-5")
    assert "worse off by themselves: cluster-3, cluster-5" in two.reasons


def _lying(block: SwitchbackBlock, jobs: float) -> SwitchbackBlock:
    return replace(block, jobs=jobs, twin=TwinSays(jobs, 10.0, 10.0 + (jobs - 10.0) * block.candidate))


@pytest.mark.parametrize("lie", [0.0, 1e9])
@pytest.mark.parametrize("pairs", [6, 20])
def test_one_cluster_that_lies_neither_fails_nor_passes_a_version(lie: float, pairs: int) -> None:
    honest = dict.fromkeys(CLUSTERS, 0.0 if lie else 0.08)
    for seed in range(10):
        evidence = _evidence(seed, pairs, honest)
        blocks = blocks_of(seed, pairs, name="cluster-0")
        evidence["cluster-0"] = evidence_of(
            pairs_of([_lying(block, lie if block.candidate else 10.0) for block in blocks]), RULE
        )
        outcome = judge(evidence, CLUSTERS, RULE, time_over=False).outcome
        assert outcome is not (StageOutcome.FAIL if lie else StageOutcome.PASS)


FIVE = CLUSTERS[:5]


def _first_with_liar(seed: int, loss: float, reported: float, most: int = 40, twin_error: float = 0.05) -> Verdict:
    """The first word on a version of which the first of five clusters tells a loss that is none of its own."""
    losses = {FIVE[0]: reported} | dict.fromkeys(FIVE[1:], loss)
    brought = {name: blocks_of(seed, most, name=name, loss=losses[name], twin_error=twin_error) for name in FIVE}
    for pairs in range(2, most + 1, 2):
        evidence = {name: evidence_of(pairs_of(blocks[: 2 * pairs]), RULE) for name, blocks in brought.items()}
        verdict = judge(evidence, FIVE, RULE, time_over=pairs >= most)
        if verdict.outcome is not StageOutcome.WAIT:
            return verdict
    raise AssertionError("the last look has to say something")


@pytest.mark.parametrize("praise", [-0.05, -0.15, -0.9])
def test_one_of_five_that_praises_a_worse_version_does_not_keep_it_from_failing(praise: float) -> None:
    outcomes = [_first_with_liar(seed, 0.05, praise).outcome for seed in range(30)]
    assert outcomes.count(StageOutcome.FAIL) >= 24
    assert outcomes.count(StageOutcome.PASS) <= 1


def test_one_that_praises_holds_verdicts_up_less_where_they_take_long() -> None:
    outcomes = [_first_with_liar(seed, 0.05, -0.15, twin_error=0.1).outcome for seed in range(20)]
    assert outcomes.count(StageOutcome.FAIL) >= 16  # 4 where the praise stayed in what was judged
    assert StageOutcome.PASS not in outcomes


@pytest.mark.heavy
@pytest.mark.parametrize("blame", [0.05, 0.15, 0.9])
def test_one_of_five_that_blames_an_equal_version_hardly_ever_stops_it(blame: float) -> None:
    outcomes = [_first_with_liar(seed, 0.0, blame).outcome for seed in range(40)]
    assert outcomes.count(StageOutcome.FAIL) <= 2
    assert outcomes.count(StageOutcome.PASS) >= 30


def test_a_figure_that_one_cluster_alone_makes_is_called_that_clusters() -> None:
    honest = {name: blocks_of(1, 20, name=name, loss=0.05) for name in FIVE[1:]}
    evidence = {name: evidence_of(pairs_of(blocks), RULE) for name, blocks in honest.items()}
    assert judge(evidence, FIVE, RULE, time_over=False).rests_on == ""
    lies = blocks_of(1, 20, name=FIVE[0], loss=-0.9)
    verdict = judge({**evidence, FIVE[0]: evidence_of(pairs_of(lies), RULE)}, FIVE, RULE, time_over=False)
    assert verdict.loss.estimate < 0.0
    assert verdict.rests_on == FIVE[0]


def test_one_cluster_by_itself_gets_no_verdict() -> None:
    alone = {"cluster-0": _evidence(1, 40)["cluster-0"]}
    assert judge(alone, ["cluster-0"], RULE, time_over=False).outcome is StageOutcome.WAIT
    assert judge(alone, ["cluster-0"], RULE, time_over=True).outcome is StageOutcome.INCONCLUSIVE


@pytest.mark.parametrize("others", [0, 1])
def test_an_operator_is_asked_at_once_where_too_few_are_left_to_contradict_one_that_suffers(others: int) -> None:
    evidence = _evidence(1, 40, {"cluster-0": 0.9})
    stage = CLUSTERS[: 1 + others]
    verdict = judge({name: evidence[name] for name in stage}, stage, RULE, time_over=False)
    assert (verdict.outcome, verdict.held) == (StageOutcome.INCONCLUSIVE, ("cluster-0",))
    assert "cluster-0 is worse off by itself, and too few are left" in verdict.reasons[0]
    stage = CLUSTERS[:4]
    assert judge({name: evidence[name] for name in stage}, stage, RULE, time_over=False).reasons != verdict.reasons


@pytest.mark.parametrize(
    ("loss", "foreseen", "alarms"),
    [(0.6, 0.7, 1), (0.6, 0.4, 0), (0.4, 0.7, 0), (0.6, None, 0), (-0.6, -0.7, 0), (0.5, 0.5, 1)],
)
def test_one_pair_is_an_alarm_where_the_loss_was_had_and_foreseen(
    loss: float, foreseen: float | None, alarms: int
) -> None:
    scores = [Score(0.0, 0.0), Score(loss, foreseen)]
    assert alarms_of(scores, RULE.alarm_loss) == alarms


def test_a_cluster_with_an_alarm_is_held_at_once_and_alone_decides_nothing() -> None:
    evidence = _evidence(1, 4)
    verdict = judge(
        {**evidence, "cluster-2": replace(evidence["cluster-2"], alarms=1)}, CLUSTERS, RULE, time_over=False
    )
    assert verdict.held == ("cluster-2",)
    assert verdict.outcome is not StageOutcome.FAIL
    two = {name: replace(evidence[name], alarms=1) for name in ("cluster-2", "cluster-4")}
    assert judge({**evidence, **two}, CLUSTERS, RULE, time_over=False).outcome is StageOutcome.FAIL


def test_a_stage_passes_only_when_every_cluster_of_it_brought_its_pairs() -> None:
    evidence = _evidence(1, 24)
    assert judge(evidence, [*CLUSTERS, "new"], RULE, time_over=False).outcome is StageOutcome.WAIT
    late = judge(evidence, [*CLUSTERS, "new"], RULE, time_over=True)
    assert late.outcome is StageOutcome.INCONCLUSIVE
    assert late.reasons == ("new: fewer than 2 pairs of blocks",)


def test_nothing_known_is_said_to_be_nothing() -> None:
    verdict = judge({}, [], RULE, time_over=False)
    assert verdict.outcome is StageOutcome.WAIT
    assert verdict.reasons == ("nothing is known yet; less than 3.0% more passes",)


@pytest.mark.parametrize(
    ("worse", "said"),
    [
        ({"guard_share": 0.2}, "the guard steps in more often, whichever cluster is left out"),
        ({"starved_jobs": 3}, "more jobs starve, whichever cluster is left out"),
        ({"latency_p99_seconds": 2.0}, "decisions take longer, whichever cluster is left out"),
    ],
)
def test_guard_starvation_and_latency_fail_a_version_by_themselves(worse: dict[str, float], said: str) -> None:
    evidence = {}
    for name in CLUSTERS:
        blocks = blocks_of(1, 4, name=name)
        blocks = [replace(block, **worse) if block.candidate else block for block in blocks]  # type: ignore[arg-type]
        evidence[name] = evidence_of(pairs_of(blocks), RULE)
    verdict = judge(evidence, CLUSTERS, RULE, time_over=False)
    assert verdict.outcome is StageOutcome.FAIL
    assert verdict.reasons == (said,)
    one = {name: own if name == "cluster-0" else _evidence(1, 4)[name] for name, own in evidence.items()}
    assert judge(one, CLUSTERS, RULE, time_over=False).outcome is not StageOutcome.FAIL


def test_the_gate_stops_what_is_worse_and_lets_the_rest_pass() -> None:
    def replays(*ratios: float) -> dict[str, list[Replayed]]:
        return {f"cluster-{number}": [Replayed(ratio, 1.0, 1.2)] for number, ratio in enumerate(ratios)}

    assert judge_replays(replays(1.5, 1.2, 1.3, 1.9), 0.03).outcome is StageOutcome.FAIL
    assert judge_replays(replays(1.0, 0.99, 1.01, 1.02), 0.03).outcome is StageOutcome.PASS
    assert judge_replays(replays(1.0, 0.9, 1.0, 1.3), 0.03).outcome is StageOutcome.INCONCLUSIVE
    assert judge_replays(replays(9.0, 1.0, 1.0, 1.0), 0.03).outcome is not StageOutcome.FAIL
    few = judge_replays({**replays(1.5, 1.5), "empty": []}, 0.03)
    assert few.reasons == ("workloads of 2 clusters; the gate needs those of 3",)
    beaten = {name: [Replayed(1.0, 1.3, 0.8)] for name in CLUSTERS}
    assert judge_replays(beaten, 0.03).outcome is StageOutcome.FAIL


def test_bounds_below_nought_are_said_as_the_gain_that_they_are() -> None:
    better = {name: [Replayed(90.0 + number, 100.0, 150.0)] for number, name in enumerate(CLUSTERS)}
    assert judge_replays(better, 0.03).reasons == (
        "replays take at least 6.0% less time, whichever cluster is left out",
    )
    passed = _first_verdict(1, dict.fromkeys(CLUSTERS, -0.3))
    assert passed.outcome is StageOutcome.PASS
    assert re.fullmatch(r"at least \d+\.\d\d% fewer jobs in the system, .*", passed.reasons[0])
