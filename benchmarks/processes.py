"""Processes of benchmarks: the pool that they spread their runs over, and the end of those that they talk with."""

from __future__ import annotations

import subprocess
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

GRACE_SECONDS = 30.0
"""For a process whose input has ended, to end too."""


def process_pool(processes: int) -> ProcessPoolExecutor:
    """A pool of fresh processes of one torch thread each.

    Spawned, never forked: the threads of torch's OpenMP runtime do not survive a fork, and the first parallel
    operation of a child forked after they started waits for them for ever.
    """
    return ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    )


def end_by_input(process: subprocess.Popen[str]) -> None:
    """End a process that reads commands, by the end of its input; by force if it does not heed that."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
