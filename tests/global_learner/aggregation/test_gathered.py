"""What a region's clusters came to: weights, bases, and going on from a snapshot."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learner_makers import SPEC, vector

from global_learner.aggregation.region import Contributions, Gathered, Parcel
from policy_net.exchange.spec import Weights

Part = tuple[Weights, float, Contributions]


def part(seed: int, weight: float = 1.0, samples: int = 10, base: int = 0) -> Part:
    return vector(seed), weight, Contributions(samples, samples / 2.0, 1, Counter({base: samples}))


def gathered(*parts: Part) -> Gathered:
    found = Gathered(SPEC.parameter_count)
    for one in parts:
        found.add(*one)
    return found


def test_a_push_is_the_mean_by_weight_and_has_all_samples() -> None:
    parcel = gathered(part(1, 1.0, 10), part(2, 3.0, 30)).take(7, 4)
    assert np.allclose(parcel.gradient, (vector(1) + 3 * vector(2)) / 4, atol=1e-6)
    assert (parcel.incarnation, parcel.sequence) == (7, 4)
    assert (parcel.samples, parcel.effective_samples, parcel.updates) == (40, 20.0, 2)


def test_what_was_taken_is_not_there_any_more() -> None:
    found = gathered(part(1))
    found.take(1, 1)
    assert (found.updates, found.samples) == (0, 0)
    with pytest.raises(ValueError, match="nothing"):
        found.take(1, 2)
    found.add(*part(2))
    assert np.array_equal(found.take(1, 2).gradient, vector(2))


@pytest.mark.parametrize(
    ("parts", "middle"),
    [
        ([(5, 10)], 5),
        ([(5, 10), (9, 10)], 5),
        ([(5, 10), (9, 11)], 9),
        ([(1, 10), (8, 40), (9, 40)], 8),
        ([(0, 1), (8, 40), (9, 1)], 8),
    ],
)
def test_a_push_is_as_old_as_the_middle_one_of_its_samples(parts: list[tuple[int, int]], middle: int) -> None:
    assert gathered(*(part(base, samples=samples, base=base) for base, samples in parts)).take(1, 1).base_step == middle


def test_a_gradient_that_weighs_nothing_is_left_out() -> None:
    assert gathered(part(1, 0.0)).updates == 0


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(1e-6, 1e6), st.integers(1, 8192)), min_size=1), st.data())
def test_a_snapshot_anywhere_changes_no_bit(parts: list[tuple[int, float, int]], data: st.DataObject) -> None:
    made = [part(seed, weight, samples, seed) for seed, weight, samples in parts]
    cut = data.draw(st.integers(0, len(made)))
    other = Gathered(SPEC.parameter_count)
    other.restore(gathered(*made[:cut]).kept())
    for one in made[cut:]:
        other.add(*one)
    mine, theirs = gathered(*made).take(1, 1), other.take(1, 1)
    assert mine.gradient.tobytes() == theirs.gradient.tobytes()
    assert mine.kept().facts == theirs.kept().facts
    again = Parcel.restored(theirs.kept())
    assert again.gradient.tobytes() == mine.gradient.tobytes()
