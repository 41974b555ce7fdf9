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


def test_processes_end_when_the_results_are_no_longer_wanted() -> None:
    results = run_in_processes(_own_id, range(100), 1)
    _, process_id = next(results)
    results.close()
    assert isinstance(process_id, int)
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)
