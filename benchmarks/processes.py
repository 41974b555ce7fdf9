"""The pool of processes that benchmarks spread their runs over."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch


def process_pool(processes: int) -> ProcessPoolExecutor:
    """A pool of fresh processes of one torch thread each.

    Spawned, never forked: the threads of torch's OpenMP runtime do not survive a fork, and the first parallel
    operation of a child forked after they started waits for them for ever.
    """
    return ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    )
