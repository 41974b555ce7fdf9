import pytest

from global_learner.rollout.verdicts.gate import Replayed, replays_of


def score(seconds: float) -> dict[str, object]:
    rows = [
        {
            "replay": name,
            "avg_jct_seconds": seconds,
            "baseline_jct_seconds": {"drf": 9.0, "optimus": 8.0, "oracle": 1.0},
        }
        for name in ("crowded", "steady")
    ]
    return {"state": "scored", "replays": rows}


def test_the_best_incumbent_and_the_best_heuristic_but_never_the_oracle() -> None:
    found = replays_of({3: score(5.0), 1: score(7.0), 2: score(6.0)}, 3, {1, 2})
    assert found == {"crowded": [Replayed(5.0, 6.0, 8.0)], "steady": [Replayed(5.0, 6.0, 8.0)]}


@pytest.mark.parametrize("scored", [{}, {3: score(5.0)}, {1: score(5.0)}])
def test_until_all_are_replayed_there_is_nothing(scored: dict[int, dict[str, object]]) -> None:
    assert replays_of(scored, 3, {1}) is None


def test_replays_that_failed_say_why() -> None:
    failed = {"state": "failed", "reason": "it took too long"}
    assert replays_of({3: failed}, 3, {1}) == "the replays of v3 failed: it took too long"
