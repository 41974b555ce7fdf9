import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_net.domain import JobKind
from policy_net.exchange.statistics import CLUSTER_COUNT, SpeedStatistic
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.throughput.fleet_priors import (
    MOST_COUNT,
    MOST_REPORTERS,
    FleetPriors,
    merge_fleet,
    row_medians,
    weighted_median,
    weighted_medians,
)
from policy_net.throughput.process_prior import prior_of_type
from policy_net.throughput.type_belief import NOISE

TRUTH = default_speeds()
CELLS = ((1, 1), (2, 2), (4, 1), (4, 4), (8, 2), (8, 8), (2, 6), (3, 3), (6, 4), (1, 3))
Report = tuple[SpeedStatistic, ...]


def cluster(
    seed: int,
    cells: tuple[tuple[int, int], ...] = CELLS,
    *,
    factor: float = 1.0,
    count: int = 20,
    job_type: str = "vgg-16",
    noise: float = NOISE,
) -> Report:
    """What a cluster with GPUs of another speed has seen, with noise."""
    random = np.random.default_rng(seed)
    return tuple(
        SpeedStatistic(
            job_type,
            JobKind.PS,
            ps,
            workers,
            math.log(factor * TRUTH.samples_per_second(job_type, ps, workers))
            + float(random.normal(0, noise / math.sqrt(count))),
            count,
        )
        for ps, workers in cells
    )


def worst_error(merged: FleetPriors, factor: float = 1.0) -> float:
    return max(
        abs(entry.mean_log_speed - math.log(factor * TRUTH.samples_per_second(entry.job_type, entry.ps, entry.workers)))
        for entry in merged.statistics
    )


def garbage(seed: int, cells: tuple[tuple[int, int], ...] = CELLS) -> Report:
    random = np.random.default_rng(seed)
    return tuple(
        replace(entry, mean_log_speed=float(random.uniform(-8, 15)), count=10**9) for entry in cluster(0, cells)
    )


def test_one_cluster_is_told_as_it_is_with_its_counts_capped() -> None:
    report = cluster(1)
    merged = merge_fleet({"a": report})
    assert merged.clusters == 1
    assert merged.observations == 20 * len(CELLS)
    reported = {(entry.ps, entry.workers): entry.mean_log_speed for entry in report}
    assert {(entry.ps, entry.workers): entry.mean_log_speed for entry in merged.statistics} == pytest.approx(reported)
    assert {entry.count for entry in merged.statistics} == {CLUSTER_COUNT}


def test_noise_averages_out_over_clusters() -> None:
    alone = merge_fleet({"a": cluster(1, count=2)})
    together = merge_fleet({str(seed): cluster(seed, count=2) for seed in range(24)})
    assert worst_error(together) < worst_error(alone) / 2
    assert {entry.count for entry in together.statistics} == {48}


def test_clusters_of_other_speeds_are_aligned_before_they_are_averaged() -> None:
    # Each has seen another half of the cells: without a common scale the shape would be torn in two.
    fleet = {
        "slow": cluster(1, CELLS[:7], factor=0.5),
        "middle": cluster(2, CELLS, factor=1.0),
        "fast": cluster(3, CELLS[3:], factor=2.0),
    }
    assert worst_error(merge_fleet(fleet)) < 0.2


@pytest.mark.parametrize("shares_now", ["a hundred times too fast", "noise", "half of the cells upside down"])
def test_a_cluster_whose_speeds_are_absurd_changes_little(shares_now: str) -> None:
    sound = {str(seed): cluster(seed) for seed in range(4)}
    liar = {
        "a hundred times too fast": tuple(replace(e, mean_log_speed=e.mean_log_speed + 4.6) for e in cluster(9)),
        "noise": garbage(9),
        "half of the cells upside down": tuple(
            replace(e, mean_log_speed=-e.mean_log_speed) if e.ps > 2 else e for e in cluster(9)
        ),
    }[shares_now]
    clean, poisoned = merge_fleet(sound), merge_fleet({**sound, "liar": liar})
    assert poisoned.left_out == (("liar", "vgg-16"),)
    assert poisoned.statistics == clean.statistics
    assert poisoned.clusters == 4


def test_an_absurd_cell_that_nobody_else_saw_is_not_believed() -> None:
    sound = {str(seed): cluster(seed) for seed in range(4)}
    liar = (*cluster(9), SpeedStatistic("vgg-16", JobKind.PS, 16, 16, 15.0, 1000))
    merged = merge_fleet({**sound, "liar": liar})
    assert (16, 16) not in {(entry.ps, entry.workers) for entry in merged.statistics}
    truth = SpeedStatistic("vgg-16", JobKind.PS, 7, 5, math.log(TRUTH.samples_per_second("vgg-16", 7, 5)), 9)
    merged = merge_fleet({**sound, "scout": (*cluster(9), truth)})
    assert (7, 5) in {(entry.ps, entry.workers) for entry in merged.statistics}


def test_where_half_of_the_clusters_contradict_the_others_nothing_is_said() -> None:
    merged = merge_fleet({"a": cluster(1), "b": garbage(2), "c": cluster(3, job_type="resnet-50")})
    assert merged.withheld == ("vgg-16",)
    assert {entry.job_type for entry in merged.statistics} == {"resnet-50"}
    base = cluster(5, count=3)
    kept = merge_fleet({"a": cluster(1), "b": garbage(2)}, base)
    assert set(kept.statistics) == set(base), "what the first version said stays"


def test_the_first_versions_cells_fill_what_no_cluster_saw_at_the_fleets_scale() -> None:
    base = cluster(5, CELLS, factor=10.0, count=1000)
    fleet = {str(seed): cluster(seed, CELLS[:5], count=64) for seed in range(3)}
    merged = merge_fleet(fleet, base)
    assert len(merged.statistics) == len(CELLS)
    assert worst_error(merged) < 0.4
    assert {entry.count for entry in merged.statistics if (entry.ps, entry.workers) in CELLS[5:]} == {CLUSTER_COUNT}


def test_a_type_that_too_few_have_reported_stays_as_it_was() -> None:
    base = cluster(5)
    fleet = {"a": cluster(1), "b": cluster(2), "c": (*cluster(3), *cluster(4, job_type="resnet-50"))}
    merged = merge_fleet({name: fleet[name] for name in ("a", "b")}, base, least_clusters=3)
    assert set(merged.statistics) == set(base)
    assert {entry.job_type for entry in merge_fleet(fleet, least_clusters=3).statistics} == {"vgg-16"}


def test_a_type_has_the_kind_that_most_clusters_give_it() -> None:
    ring = (SpeedStatistic("vgg-16", JobKind.ALLREDUCE, 0, 4, 5.0, 10),)
    merged = merge_fleet({"a": ring, "b": cluster(1), "c": cluster(2)})
    assert {entry.kind for entry in merged.statistics} == {JobKind.PS}


RING = tuple(SpeedStatistic("vgg-16", JobKind.ALLREDUCE, 0, workers, 12.0, 10) for workers in (1, 2, 4))


def test_of_a_type_that_as_many_clusters_give_one_kind_as_another_nothing_is_said() -> None:
    merged = merge_fleet({"a": cluster(1), "b": (*RING, *cluster(2, job_type="resnet-50"))})
    assert merged.withheld == ("vgg-16",)
    assert {entry.job_type for entry in merged.statistics} == {"resnet-50"}


def test_a_tie_of_kinds_goes_to_what_the_version_before_said_else_to_the_first_version() -> None:
    tied = {"a": cluster(1), "b": RING}
    for known in ({"before": cluster(3)}, {"base": cluster(3)}, {"before": cluster(3), "base": RING}):
        merged = merge_fleet(tied, **known)
        assert not merged.withheld
        assert {entry.kind for entry in merged.statistics} == {JobKind.PS}
        assert merged.observations == merge_fleet({"a": cluster(1)}).observations


def test_a_tie_between_kinds_that_no_version_gave_the_type_leaves_the_first_versions_word() -> None:
    base = tuple(replace(entry, kind=JobKind.ASYNC) for entry in cluster(3))
    merged = merge_fleet({"a": cluster(1), "b": RING}, base)
    assert merged.withheld == ("vgg-16",)
    assert set(merged.statistics) == set(base)


def test_nothing_makes_nothing() -> None:
    assert merge_fleet({}) == FleetPriors(())
    assert merge_fleet({"a": ()}) == FleetPriors(())


statistics = st.builds(
    lambda job_type, uses_ps, ps, workers, mean, count: SpeedStatistic(
        job_type, JobKind.PS if uses_ps else JobKind.ALLREDUCE, ps if uses_ps else 0, workers, mean, count
    ),
    st.sampled_from("ab"),
    st.booleans(),
    st.integers(1, 16),
    st.integers(1, 16),
    st.floats(-14, 20),
    st.integers(1, 10**12),
)
fleets = st.dictionaries(
    st.sampled_from(["n", "s", "e", "w"]),
    st.lists(statistics, max_size=12, unique_by=lambda e: (e.job_type, e.ps, e.workers)).map(tuple),
)


@given(fleets)
def test_whatever_is_reported_the_outcome_is_sound_and_the_same_in_any_order(fleet: dict[str, Report]) -> None:
    merged = merge_fleet(fleet)
    again = merge_fleet({name: tuple(reversed(fleet[name])) for name in reversed(list(fleet))})
    assert merged == again
    splits = [(entry.job_type, entry.ps, entry.workers) for entry in merged.statistics]
    assert splits == sorted(set(splits))
    low = min((e.mean_log_speed for report in fleet.values() for e in report), default=0.0)
    high = max((e.mean_log_speed for report in fleet.values() for e in report), default=0.0)
    reach = high - low + 1e-6
    for entry in merged.statistics:
        assert 1 <= entry.count <= MOST_COUNT
        assert low - reach <= entry.mean_log_speed <= high + reach
    for job_type in {entry.job_type for entry in merged.statistics}:
        prior = prior_of_type(tuple(entry for entry in merged.statistics if entry.job_type == job_type))
        assert np.isfinite(prior.mean).all()


EVERY_CELL = tuple((ps, workers) for ps in range(1, 17) for workers in range(1, 17))


def test_a_liar_on_every_cell_does_not_own_the_cells_that_few_have_seen() -> None:
    random = np.random.default_rng(3)
    sound = {
        str(seed): cluster(seed, tuple(EVERY_CELL[index] for index in sorted(random.choice(256, 60, replace=False))))
        for seed in range(5)
    }
    merged = merge_fleet({**sound, "liar": garbage(9, EVERY_CELL)})
    assert merged.left_out == (("liar", "vgg-16"),)
    assert merged.statistics == merge_fleet(sound).statistics


def test_a_cell_on_which_two_contradict_each_other_is_left_out() -> None:
    sound = {"a": cluster(1), "b": cluster(2)}
    odd = tuple(
        replace(entry, mean_log_speed=entry.mean_log_speed + (1.5 if (entry.ps, entry.workers) == (8, 8) else 0.0))
        for entry in cluster(3)
    )
    cells = {(entry.ps, entry.workers) for entry in merge_fleet({"a": sound["a"], "odd": odd}).statistics}
    assert cells == set(CELLS) - {(8, 8)}
    assert worst_error(merge_fleet({**sound, "odd": odd})) < 0.3, "of three the middle one is right"


def test_of_very_many_clusters_some_are_heard() -> None:
    merged = merge_fleet({f"{number:03}": cluster(number, count=4) for number in range(2 * MOST_REPORTERS + 1)})
    assert merged.clusters == -(-(2 * MOST_REPORTERS + 1) // 3)
    assert worst_error(merged) < 0.05


columns = st.lists(st.tuples(st.floats(-50, 50), st.integers(0, 5)), min_size=1, max_size=9)


@given(columns)
def test_a_weight_is_as_good_as_so_many_repetitions(column: list[tuple[float, int]]) -> None:
    values, weights = (np.array(part, dtype=np.float64) for part in zip(*column, strict=True))
    repeated = np.repeat(values, weights.astype(int))
    if len(repeated):
        assert weighted_median(values, weights) == pytest.approx(np.median(repeated))
    else:
        assert np.isnan(weighted_medians(values[:, None], weights[:, None])).all()


@given(st.lists(columns, min_size=1, max_size=4))
def test_columns_have_nothing_to_do_with_one_another(parts: list[list[tuple[float, int]]]) -> None:
    height = max(map(len, parts))
    values, weights = np.full((height, len(parts)), np.nan), np.zeros((height, len(parts)))
    for index, part in enumerate(parts):
        values[: len(part), index], weights[: len(part), index] = zip(*part, strict=True)
    alone = [weighted_medians(values[:, [index]], weights[:, [index]])[0] for index in range(len(parts))]
    np.testing.assert_array_equal(weighted_medians(values, weights), alone)


@given(st.lists(st.lists(st.floats(-50, 50), min_size=1, max_size=7), min_size=1, max_size=4))
def test_gaps_in_rows_are_left_out(rows: list[list[float]]) -> None:
    values = np.full((len(rows), 9), np.nan)
    for index, row in enumerate(rows):
        values[index, 1 : 1 + len(row)] = row
    np.testing.assert_allclose(row_medians(values), np.nanmedian(values, axis=1))


def test_nothing_has_no_median() -> None:
    with pytest.raises(ValueError, match="weight"):
        weighted_median(np.array([1.0]), np.array([0.0]))
