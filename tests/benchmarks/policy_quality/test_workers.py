import os
import signal

import pytest

from benchmarks.policy_quality.workers import Failure, run_in_processes
from policy_net.errors import BadInput


def _work(item: int) -> int:
    if item == 3:
        raise BadInput("three is\nnot allowed")
    if item == 4:
        raise ZeroDivisionError("by four")
    if item == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item


@pytest.mark.parametrize("processes", [1, 2])
def test_every_item_has_its_result_or_its_failure(processes: int) -> None:
    outcomes = dict(run_in_processes(_work, range(9), processes))
    assert set(outcomes) == set(range(9))
    assert outcomes[3] == Failure("three is not allowed")
    assert outcomes[4] == Failure("ZeroDivisionError: by four")
    assert outcomes[5] == Failure(f"its process died with exit code -{signal.SIGKILL.value}")
    assert [outcomes[item] for item in (0, 1, 2, 6, 7, 8)] == [0, 1, 4, 36, 49, 64]


def test_fewer_items_than_processes() -> None:
    assert dict(run_in_processes(_work, [2], 3)) == {0: 4}


def test_nothing_to_do_starts_nothing() -> None:
    assert list(run_in_processes(_work, [], 2)) == []


def _own_id(item: int) -> int:
    return os.getpid()


def _tens(item: int) -> int:
    return item // 10


def test_items_that_share_something_go_to_one_process_one_after_another() -> None:
    items = [0, 10, 1, 20, 11, 2, 30, 21]
    by_group: dict[int, set[object]] = {}
    for index, process_id in run_in_processes(_own_id, items, 2, alike=_tens):
        by_group.setdefault(_tens(items[index]), set()).add(process_id)
    assert set(by_group) == {0, 1, 2, 3}
    assert all(len(processes) == 1 for processes in by_group.values())


def test_the_others_of_a_group_are_done_by_another_process_when_theirs_dies() -> None:
    outcomes = dict(run_in_processes(_work, [4, 5, 6, 7], 1, alike=_tens))
    assert set(outcomes) == {0, 1, 2, 3}
    assert isinstance(outcomes[1], Failure)
    assert (outcomes[2], outcomes[3]) == (36, 49)


def test_processes_end_when_the_results_are_no_longer_wanted() -> None:
    results = run_in_processes(_own_id, range(100), 1)
    _, process_id = next(results)
    results.close()
    assert isinstance(process_id, int)
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)
