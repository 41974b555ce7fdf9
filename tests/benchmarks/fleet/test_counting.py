from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fleet.measure import Counted, count
from global_learner.storage.receipts import Receipt


def receipts(*names: tuple[str, int, int], kind: str = "update") -> list[Receipt]:
    return [Receipt(step, *name, 0, 0, 1, 0.1, 1, 0.0, kind) for step, name in enumerate(names, start=1)]


def test_what_was_acknowledged_and_is_in_the_log_once_is_all_there_is() -> None:
    log = receipts(("a", 1, 1), ("b", 7, 1), ("a", 1, 2))
    assert count(log, {"a": (1, [1, 2]), "b": (7, [1])}) == Counted(3, 0, 0, 0, 0)


def test_each_kind_of_difference_is_counted_by_itself() -> None:
    log = receipts(("a", 1, 1), ("a", 1, 1), ("a", 2, 2), ("c", 1, 1))
    assert count(log, {"a": (1, [1, 2]), "b": (1, [1])}) == Counted(logged=4, lost=2, twice=1, unasked=2, gaps=0)


def test_a_number_of_another_incarnation_is_another_update() -> None:
    assert count(receipts(("a", 2, 1)), {"a": (1, [1])}).lost == 1


def test_resets_are_nobodys_updates() -> None:
    log = [*receipts(("a", 1, 1)), replace(receipts(("someone", 0, 3), kind="reset")[0], step=2)]
    assert count(log, {"a": (1, [1])}) == Counted(1, 0, 0, 0, 0)


@pytest.mark.parametrize("steps", [[1, 3], [2, 3], [1, 1], [2, 1]])
def test_steps_that_are_missing_or_out_of_order_are_gaps(steps: list[int]) -> None:
    log = [replace(entry, step=step) for entry, step in zip(receipts(("a", 1, 1), ("a", 1, 2)), steps, strict=True)]
    assert count(log, {"a": (1, [1, 2])}).gaps > 0


NAMES = st.lists(st.tuples(st.sampled_from("abc"), st.just(1), st.integers(1, 9)), max_size=20)


@given(logged=NAMES, reported=st.frozensets(st.tuples(st.sampled_from("abc"), st.just(1), st.integers(1, 9))))
def test_nothing_is_lost_exactly_if_the_log_holds_all_that_was_told(
    logged: list[tuple[str, int, int]], reported: frozenset[tuple[str, int, int]]
) -> None:
    acknowledged = {name: (1, [number for of, _, number in reported if of == name]) for name in "abc"}
    counted = count(receipts(*logged), acknowledged)
    assert (counted.lost == 0) == (reported <= set(logged))
    assert counted.logged - counted.twice - counted.unasked + counted.lost == len(reported)
