from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.learning import worlds as learning
from benchmarks.policy_quality.cells import Durations, RealCell
from benchmarks.policy_quality.plan import DEFAULT, FULL, QUICK, RECORDED, cells_of
from benchmarks.policy_quality.seeds import JUDGED_GENERATOR_SEED, SEEDS, SMALLEST_WINDOW, Part, windows_of
from benchmarks.policy_quality.worlds import Cluster


def _overlap(one: range, other: range) -> bool:
    return max(one.start, other.start) < min(one.stop, other.stop)


def test_no_seed_serves_two_purposes() -> None:
    for one, other in combinations(SEEDS.values(), 2):
        assert not _overlap(one.generator, other.generator)
        assert not _overlap(one.models, other.models)
        assert not _overlap(one.disturbances, other.disturbances)


def test_every_part_has_seeds_in_use() -> None:
    assert set(SEEDS) == set(Part)
    assert all(len(ranges.generator) > 0 and len(ranges.models) > 0 for ranges in SEEDS.values())


def test_the_benchmark_of_learning_keeps_to_the_same_parts() -> None:
    assert learning.START_SEEDS in SEEDS[Part.TRAIN].generator
    assert learning.HELD_OUT_SEED in SEEDS[Part.TEST].generator
    last_held_out = learning.HELD_OUT_SEED + max(learning.HELD_OUT_A_MIX, learning.HELD_OUT_SILENT)
    assert last_held_out < JUDGED_GENERATOR_SEED


def test_every_cell_is_made_of_seeds_that_judge() -> None:
    clusters = [Cluster("small", "d", 56), Cluster("large", "d", 34_750)]
    for grid in (QUICK, DEFAULT, RECORDED, FULL):
        for cell in cells_of(grid, clusters):
            assert cell.noise_seed in SEEDS[Part.TEST].disturbances
            seeds, of_cell = (
                (SEEDS[Part.TEST].models, cell.model_seed)
                if hasattr(cell, "model_seed")
                else (SEEDS[Part.TEST].generator, cell.seed)
            )
            assert of_cell in seeds


def test_recorded_workloads_alone_are_of_known_and_of_unknown_work() -> None:
    cells = cells_of(RECORDED, [Cluster("large", "d", 34_750)])
    assert {(cell.job_kind, cell.durations) for cell in cells if isinstance(cell, RealCell)} == {
        (kind, durations) for kind in ("allreduce", "mix") for durations in (Durations.KNOWN, Durations.UNKNOWN)
    }
    assert all(isinstance(cell, RealCell) for cell in cells)
    assert "made-up" not in RECORDED.describe()
    assert "all clusters" in RECORDED.describe()


@given(jobs=st.integers(1, 50_000), length=st.integers(2, 2_000))
def test_the_last_window_judges_and_none_is_small(jobs: int, length: int) -> None:
    windows = windows_of(jobs, length)
    assert 1 <= len(windows) <= 3
    assert list(windows)[-1] == max(windows)
    assert windows[max(windows)] is Part.TEST
    assert len(set(windows.values())) == len(windows)
    if len(windows) > 1:
        assert all(jobs - window * length >= SMALLEST_WINDOW * length for window in windows)


def test_windows_of_a_large_cluster_are_its_first_middle_and_last() -> None:
    assert windows_of(9_400, 1_000) == {0: Part.TRAIN, 4: Part.VALIDATION, 8: Part.TEST}


def test_two_windows_train_and_judge() -> None:
    assert windows_of(1_600, 1_000) == {0: Part.TRAIN, 1: Part.TEST}


def test_a_cluster_with_one_window_only_judges() -> None:
    assert windows_of(1_400, 1_000) == {0: Part.TEST}
