"""What is learned does not depend on how a job was resized and suspended while it trained."""

from __future__ import annotations

import random
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.resized_jobs import CHANGES_AT, EPOCHS, Pair, _sizes, _wanted, measure
from policy_net.domain import SUSPENDED, Allocation, Job, Resources

TOLERANCE = 1e-3
"""Of losses of models without batch norm, as docs/guide/elastic.md promises it."""


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def pairs_of(example: str, folder: Path) -> list[Pair]:
    pairs = measure(example, seed=0, folder=folder, work=0.5, deadline_seconds=1500.0)
    assert [pair.communication for pair in pairs] == ["PS", "AllReduce"]
    for pair in pairs:
        assert pair.resized.steps == pair.alone.steps, "no step is lost, and none is made twice"
        assert pair.resizes + pair.suspensions >= 1, pair
    return pairs


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="launchers are found by /proc")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("example", ["tabular", "gpt"])
def test_jobs_that_were_resized_and_suspended_end_with_the_loss_of_jobs_left_alone(
    example: str, tmp_path: Path
) -> None:
    pairs = pairs_of(example, tmp_path)
    assert pairs[0].alone.loss == pytest.approx(pairs[1].alone.loss, rel=TOLERANCE), "alone, both kinds learn the same"
    for pair in pairs:
        assert pair.loss_ratio == pytest.approx(1.0, abs=TOLERANCE), pair
        assert pair.test_loss_ratio == pytest.approx(1.0, abs=TOLERANCE), pair


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="launchers are found by /proc")
@pytest.mark.timeout(1800)
def test_digits_are_told_apart_however_the_job_was_resized(tmp_path: Path) -> None:
    for pair in pairs_of("digits", tmp_path):
        for learned in (pair.alone, pair.resized):
            assert learned.accuracy is not None
            assert learned.accuracy >= 0.97, pair
        assert abs(pair.resized.test_loss - pair.alone.test_loss) < 0.02, pair


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="launchers are found by /proc")
@pytest.mark.timeout(1800)
def test_with_batch_norm_both_kinds_learn_the_same_before_rounding_has_grown(tmp_path: Path) -> None:
    """After 23 steps they are one in 5 million apart, after 69 a thousandth, after 115 a tenth."""
    servers, ranks = measure("digits", seed=0, folder=tmp_path, work=1 / EPOCHS["digits"], deadline_seconds=1500.0)
    assert servers.alone.loss == pytest.approx(ranks.alone.loss, rel=1e-4)
    assert servers.alone.test_loss == pytest.approx(ranks.alone.test_loss, rel=1e-4)


def job(done: float, current: Allocation) -> Job:
    return Job("a", "x", 0.0, Resources(1), Resources(1), 10.0, 100.0, 100.0 * (1.0 - done), current=current)


def test_sizes_are_drawn_by_a_seed_and_reached_one_after_the_other() -> None:
    sizes = _sizes(random.Random(1), "PS")
    assert sizes == _sizes(random.Random(1), "PS")
    assert sizes[2] == SUSPENDED
    assert all(size.ps == 0 for size in _sizes(random.Random(1), "AllReduce"))
    assert all(one != two for one, two in pairwise(sizes))
    reached = {"a": 0}
    first = Allocation(1, 1)
    assert _wanted(job(0.05, first), sizes, reached) == first
    assert _wanted(job(0.3, first), sizes, reached) == sizes[0]
    assert _wanted(job(0.3, first), sizes, reached) == sizes[0], "it does not have that yet"
    assert _wanted(job(0.3, sizes[0]), sizes, reached) == sizes[1]
    assert _wanted(job(CHANGES_AT[2], sizes[1]), sizes, reached) == SUSPENDED
    assert _wanted(job(CHANGES_AT[2], SUSPENDED), sizes, reached) == sizes[3], "it goes on with the next decision"
