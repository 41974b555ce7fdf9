"""Processes of a benchmark compute, whatever their parent computed before."""

import torch

from benchmarks.processes import process_pool


def _threads_and_sum(size: int) -> tuple[int, float]:
    return torch.get_num_threads(), float((torch.ones(size, size) @ torch.ones(size, size)).sum())


def test_a_process_computes_after_its_parent_did() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        _, expected = _threads_and_sum(300)  # starts the parent's OpenMP threads, which a forked child would wait for
        with process_pool(1) as pool:
            assert pool.submit(_threads_and_sum, 300).result(timeout=100) == (1, expected)
    finally:
        torch.set_num_threads(threads)
