import json
import math
from dataclasses import replace

import numpy as np
import pytest
from states import make_job

from policy_net.domain import Allocation, JobKind, Progress
from policy_net.errors import BadInput, PolicyFileError
from policy_net.exchange.statistics import (
    SpeedStatistic,
    merged,
    statistics_from_rows,
    statistics_to_rows,
)
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.throughput.fleet_priors import merge_fleet
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs

TRUTH = default_speeds()
SPLITS = ((1, 1), (2, 2), (4, 1), (4, 4), (8, 2), (8, 8), (2, 6))


def report(job_type: str, ps: int, workers: int, factor: float = 1.0) -> Progress:
    samples = 600.0 * factor * TRUTH.samples_per_second(job_type, ps, workers)
    return Progress("job", job_type, Allocation(workers, ps), 600.0, samples, samples / 100, 10.0)


def observed(factor: float = 1.0, rounds: int = 4) -> GaussianProcessBeliefs:
    beliefs = GaussianProcessBeliefs()
    for _ in range(rounds):
        beliefs.observe([report("vgg-16", ps, workers, factor) for ps, workers in SPLITS])
    return beliefs


def error_of(beliefs: GaussianProcessBeliefs, factor: float = 1.0) -> float:
    median, _ = beliefs.posterior("vgg-16")
    part = median[1:9, 1:9]
    return float(np.abs(np.log(part / (factor * TRUTH.grid("vgg-16")[1:9, 1:9]))).mean())


def test_what_others_observed_is_believed_before_anything_was_seen() -> None:
    informed = GaussianProcessBeliefs(observed().statistics())
    assert error_of(informed) < 0.1
    assert error_of(informed) < error_of(GaussianProcessBeliefs()) / 3
    assert informed.allocations_seen("vgg-16") == frozenset()
    assert informed.statistics() == ()  # nothing of others is passed off as one's own


def test_a_cluster_of_another_speed_corrects_the_scale_and_keeps_the_shape() -> None:
    beliefs = GaussianProcessBeliefs(observed().statistics())
    for _ in range(6):
        beliefs.observe([report("vgg-16", 2, 2, factor=3.0), report("vgg-16", 4, 4, factor=3.0)])
    assert error_of(beliefs, factor=3.0) < 0.15


def test_a_type_of_another_kind_than_reported_starts_from_nothing() -> None:
    beliefs = GaussianProcessBeliefs(observed().statistics())
    beliefs.introduce([make_job(0, "vgg-16", kind=JobKind.ALLREDUCE, max_ps=0, min_ps=0)])
    grid = beliefs.grid("vgg-16")
    assert (grid[0, 1:] > 0).all()
    assert not grid[1:].any()


def test_a_snapshot_on_the_same_priors_restores_every_bit() -> None:
    priors = observed().statistics()
    beliefs = GaussianProcessBeliefs(priors)
    beliefs.observe([report("vgg-16", 3, 3)])
    beliefs.grid("vgg-16")
    again = GaussianProcessBeliefs(priors)
    again.restore(json.loads(json.dumps(beliefs.snapshot())))
    assert (again.grid("vgg-16") == beliefs.grid("vgg-16")).all()
    assert again.statistics() == beliefs.statistics()


def test_what_a_fleet_of_one_says_is_not_believed_a_second_time() -> None:
    own = observed()
    priors = merge_fleet({"me": own.statistics()}).statistics
    again = GaussianProcessBeliefs(priors)
    again.restore(own.snapshot())
    assert (again.grid("vgg-16") != own.grid("vgg-16")).any(), "counted twice, it looks more certain than it is"
    again.leave_out_own()
    assert (again.grid("vgg-16") == own.grid("vgg-16")).all()


def test_only_ones_own_share_of_a_cell_is_left_out() -> None:
    own, other = observed(), observed(factor=1.1, rounds=3)
    priors = merge_fleet({"me": own.statistics(), "other": other.statistics()}).statistics
    assert {entry.count for entry in priors} == {7}
    beliefs = GaussianProcessBeliefs(priors)
    beliefs.restore(own.snapshot())
    beliefs.leave_out_own()
    of_others = GaussianProcessBeliefs(tuple(replace(entry, count=3) for entry in priors))
    of_others.restore(own.snapshot())
    assert (beliefs.grid("vgg-16") == of_others.grid("vgg-16")).all()


def test_what_was_left_out_outlives_a_snapshot_and_later_observations_are_not() -> None:
    own, other = observed(), observed(factor=1.1)
    priors = merge_fleet({"me": own.statistics(), "other": other.statistics()}).statistics
    beliefs = GaussianProcessBeliefs(priors)
    beliefs.restore(own.snapshot())
    beliefs.leave_out_own()
    beliefs.observe([report("vgg-16", 5, 5), report("vgg-16", 1, 1)])
    expected = beliefs.grid("vgg-16")
    again = GaussianProcessBeliefs(priors)
    again.restore(json.loads(json.dumps(beliefs.snapshot())))
    assert (again.grid("vgg-16") == expected).all()


def test_types_that_are_not_shared_keep_their_prior_whole() -> None:
    own = observed()
    priors = observed(factor=1.1).statistics()
    kept, dropped = (GaussianProcessBeliefs(priors) for _ in range(2))
    for beliefs in (kept, dropped):
        beliefs.restore(own.snapshot())
    before = kept.grid("vgg-16")
    kept.leave_out_own(lambda job_type: job_type != "vgg-16")
    dropped.leave_out_own()
    assert (kept.grid("vgg-16") == before).all()
    assert (dropped.grid("vgg-16") != before).any()


@pytest.mark.parametrize("share", [[[1, 1, 0]], [[0, 1, 3]], [[1, 1]], "all"])
def test_a_damaged_share_in_a_snapshot_is_refused(share: object) -> None:
    snapshot = observed().snapshot()
    entry = snapshot["vgg-16"]
    assert isinstance(entry, dict)
    entry["left_out"] = share
    with pytest.raises(BadInput, match="not a snapshot"):
        GaussianProcessBeliefs().restore(snapshot)


def test_what_no_statistic_can_say_is_not_told() -> None:
    beliefs = GaussianProcessBeliefs()
    beliefs.observe([report("vgg-16", 1, 1)])
    beliefs.observe([Progress("job", "n" * 500, Allocation(1, 1), 600.0, 6.0, 1.0, 10.0)])
    beliefs.observe([Progress("job", "slow", Allocation(1, 1), 600.0, 1e-300, 1.0, 10.0)])
    assert {entry.job_type for entry in beliefs.statistics()} == {"vgg-16"}


def test_statistics_say_type_split_speed_and_count_and_nothing_else() -> None:
    statistics = observed(rounds=3).statistics()
    assert {(entry.ps, entry.workers) for entry in statistics} == set(SPLITS)
    for entry in statistics:
        assert entry.count == 3
        assert math.exp(entry.mean_log_speed) == pytest.approx(
            TRUTH.samples_per_second("vgg-16", entry.ps, entry.workers), rel=0.02
        )
    assert all(len(row) == 6 for row in statistics_to_rows(statistics))


def test_merging_weighs_by_counts_and_caps_them() -> None:
    one = SpeedStatistic("a", JobKind.PS, 1, 1, 1.0, 30)
    other = SpeedStatistic("a", JobKind.PS, 1, 1, 2.0, 10)
    of_another_kind = SpeedStatistic("a", JobKind.ALLREDUCE, 0, 1, 9.0, 10)
    assert merged([one, other, of_another_kind], most_count=32) == (SpeedStatistic("a", JobKind.PS, 1, 1, 1.25, 32),)


def test_rows_are_read_back_as_written() -> None:
    statistics = observed().statistics()
    read = statistics_from_rows(json.loads(json.dumps(statistics_to_rows(statistics))))
    assert statistics_to_rows(read) == statistics_to_rows(statistics)


@pytest.mark.parametrize(
    "rows",
    [
        "no list",
        [["a", "ps", 1, 1, 1.0]],
        [["a", "ps", 0, 1, 1.0, 3]],
        [["a", "ps", 1, 17, 1.0, 3]],
        [["a", "allreduce", 1, 1, 1.0, 3]],
        [["a", "ring", 1, 1, 1.0, 3]],
        [["a", "ps", 1, 1, math.nan, 3]],
        [["a", "ps", 1, 1, 1e9, 3]],
        [["a", "ps", 1, 1, 1.0, 0]],
        [["a", "ps", 1, 1, 1.0, True]],
        [["a", "ps", 1, 1, "1.0", 3]],
        [["", "ps", 1, 1, 1.0, 3]],
        [["a" * 200, "ps", 1, 1, 1.0, 3]],
        [["a", "ps", 1, 1, 1.0, 3], ["a", "ps", 1, 1, 2.0, 3]],
        [["a", "ps", 1, 1, 1.0, 3], ["a", "allreduce", 0, 1, 1.0, 3]],
        [None],
    ],
)
def test_rows_that_nobody_can_have_observed_are_refused(rows: object) -> None:
    with pytest.raises(PolicyFileError, match="priors"):
        statistics_from_rows(rows)
