import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_net.dl2.action import Action, Grant, action_from_index, index_of, void_index

J = 20


@given(st.integers(0, 3 * J))
def test_every_index_means_one_action_and_back(index: int) -> None:
    assert index_of(action_from_index(index, J), J) == index


def test_all_meanings_are_distinct_and_cover_every_job_and_grant() -> None:
    meanings = {action_from_index(index, J) for index in range(3 * J + 1)}
    expected = {Action(column, grant) for column in range(J) for grant in Grant} | {Action(-1, None)}
    assert meanings == expected


def test_void_is_the_last_index() -> None:
    assert action_from_index(void_index(J), J).is_void
    assert not action_from_index(void_index(J) - 1, J).is_void


@pytest.mark.parametrize("index", [-1, 3 * J + 1])
def test_an_index_outside_is_refused(index: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        action_from_index(index, J)


def test_a_column_outside_the_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="outside"):
        index_of(Action(J, Grant.PS), J)


def test_a_bundle_gives_one_of_each() -> None:
    assert [(grant.workers, grant.ps) for grant in Grant] == [(1, 0), (0, 1), (1, 1)]
