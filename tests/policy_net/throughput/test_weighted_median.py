import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_net.throughput.fleet_priors import row_medians, weighted_median, weighted_medians

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
