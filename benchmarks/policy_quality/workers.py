"""Processes that measure, one cell at a time each; the loss of one is the loss of its cell only.

Each process is started afresh (spawn), talks through its own pipe, and ends when the pipe does: if this program is
killed, they stop by themselves. (A pool of `concurrent.futures` gives up all of its work when one process dies.)
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar

from policy_net.errors import PolicyNetError

Item = TypeVar("Item")
Result = TypeVar("Result")

STOP_SECONDS = 5.0
"""After this long a process that was told to stop is killed."""
_THREADS = "OPENBLAS_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no result, in one line."""

    reason: str


@dataclass(slots=True)
class _Worker(Generic[Item]):
    process: BaseProcess
    pipe: Connection[Item | None, object]
    index: int
    alike: deque[int]


class _Waiting(Generic[Item]):
    """Items that nobody has begun, by their index."""

    def __init__(self, items: Sequence[Item], alike: Callable[[Item], Hashable] | None) -> None:
        groups: dict[Hashable, deque[int]] = {}
        for index, item in enumerate(items):
            groups.setdefault(index if alike is None else alike(item), deque()).append(index)
        self._groups = deque(groups.values())

    def next_with(self, alike: deque[int]) -> tuple[int, deque[int]] | None:
        """The next item for a process, of those that it has begun if there are any; and those that are left of them."""
        if not alike and self._groups:
            alike = self._groups.popleft()
        return (alike.popleft(), alike) if alike else None


def run_in_processes(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    processes: int,
    alike: Callable[[Item], Hashable] | None = None,
) -> Iterator[tuple[int, Result | Failure]]:
    """Do the work on all items, in order of their starting, on so many processes.

    Args:
        work: a function of a module (it is imported by name in each process).
        alike: items for which this is the same go to one process, one after another, which may keep what they share.

    Yields:
        An item's index with its result, as they come. A failure has an error's message; whatever a process dies of is
        a failure of its item, and another process takes its place.
    """
    waiting = _Waiting(items, alike)
    workers: list[_Worker[Item]] = []
    try:
        while len(workers) < processes and (first := waiting.next_with(deque())):
            workers.append(_start(work, items, *first))
        while workers:
            ready = wait([worker.pipe for worker in workers])
            for worker in [worker for worker in workers if worker.pipe in ready]:
                index = worker.index
                following = waiting.next_with(worker.alike)
                outcome, alive = _receive(worker)
                if alive and following is not None:
                    worker.index, worker.alike = following
                    worker.pipe.send(items[worker.index])
                else:
                    workers.remove(worker)
                    _stop(worker)
                    if following is not None:
                        workers.append(_start(work, items, *following))
                yield index, outcome  # type: ignore[misc]  # pipes carry objects of any type
    finally:
        for worker in workers:
            worker.process.terminate()
            _stop(worker)


def _receive(worker: _Worker[Item]) -> tuple[object, bool]:
    """What the process answers, and whether it can go on."""
    try:
        return worker.pipe.recv(), True
    except EOFError:
        worker.process.join(STOP_SECONDS)
        return Failure(f"its process died with exit code {worker.process.exitcode}"), False


def _start(work: Callable[[Item], Result], items: Sequence[Item], index: int, alike: deque[int]) -> _Worker[Item]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(work, theirs), daemon=True)
    # There is a process for every core already: threads would only wait for each other.
    stated = _THREADS in os.environ
    os.environ.setdefault(_THREADS, "1")
    try:
        process.start()
    finally:
        if not stated:
            del os.environ[_THREADS]
    theirs.close()
    ours.send(items[index])
    return _Worker(process, ours, index, alike)


def _stop(worker: _Worker[Item]) -> None:
    worker.pipe.close()
    worker.process.join(STOP_SECONDS)
    if worker.process.is_alive():
        worker.process.kill()
        worker.process.join()


def _serve(work: Callable[[Item], Result], pipe: Connection[object, Item]) -> None:
    """The life of a process: an item in, a result or failure out, until the pipe ends."""
    gc.freeze()  # what was imported stays, and is not looked through again and again
    while True:
        try:
            item = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            answer: object = work(item)
        except KeyboardInterrupt:
            return
        except PolicyNetError as error:
            answer = Failure(" ".join(str(error).split()))
        except Exception as error:
            answer = Failure(f"{type(error).__name__}: {' '.join(str(error).split())}")
        pipe.send(answer)
