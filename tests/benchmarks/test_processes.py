"""Processes of a benchmark compute, whatever their parent computed before."""

import pytest
import torch

from benchmarks.processes import CommandedModule, percentile, process_pool


def _threads_and_sum(size: int) -> tuple[int, float]:
    return torch.get_num_threads(), float((torch.ones(size, size) @ torch.ones(size, size)).sum())


@pytest.mark.heavy
def test_a_process_computes_after_its_parent_did() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        _, expected = _threads_and_sum(300)  # starts the parent's OpenMP threads, which a forked child would wait for
        with process_pool(1) as pool:
            assert pool.submit(_threads_and_sum, 300).result(timeout=100) == (1, expected)
    finally:
        torch.set_num_threads(threads)


def test_a_module_that_ended_gives_no_answer_and_says_so() -> None:
    with CommandedModule("no_such_module") as module, pytest.raises(RuntimeError, match="no_such_module ended"):
        module.ask(1)
    with CommandedModule("json.tool", "--json-lines") as module:
        assert module.to.write("[1]\n")
        module.to.close()
        assert module.out_of.read().split() == ["[", "1", "]"]


def test_a_percentile_is_one_of_the_values() -> None:
    assert [percentile([3.0, 1.0, 2.0], share) for share in (0.0, 0.5, 0.99, 1.0)] == [1.0, 2.0, 3.0, 3.0]
    assert percentile([], 0.99) == 0.0
