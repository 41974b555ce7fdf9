"""Asynchronous training: samples are lent to workers, and lent anew when one is lost or a checkpoint is gone back to.

What was lent is journaled before the worker hears of it, with `sample_leases` as the book.
"""

from __future__ import annotations

from elastic_runtime.control.messages import LeasedRange
from elastic_runtime.coordinator.job import Job
from elastic_runtime.coordinator.state import Leases
from elastic_runtime.errors import BadInput
from elastic_runtime.sample_leases import LeaseBook

_MOST_BATCHES = 10_000


def lease(
    job: Job, worker: str, incarnation: int, generation: int, done: tuple[int, ...], batches: int
) -> tuple[LeasedRange | None, bool]:
    """Count leases as done and lend the next; and whether all epochs are done. None and False: ask again later.

    Raises:
        BadInput: the job trains synchronously, or the numbers are none.
    """
    book = _book(job)
    if book is None:
        raise BadInput(f"job {job.settings.job} trains synchronously: its samples follow from the step")
    if not 1 <= batches <= _MOST_BATCHES:
        raise BadInput(f"{batches} batches in one lease; ask for 1 to {_MOST_BATCHES}")
    task = job.task(worker)
    if not job.training or task is None or not task.live or task.incarnation != incarnation:
        return None, False
    if generation != job.state.generation.number:
        return None, False
    held = {mine.id: mine.stop for mine in book.held(worker)}
    for number in done:
        if number in held:
            book.done(number, held[number])
    lent = book.lease(worker, batches) if worker in job.plan().workers and job.halt() is None else None
    job.state.leases = Leases(book.to_json().decode())
    return LeasedRange(lent.id, lent.epoch, lent.start, lent.stop) if lent is not None else None, book.finished


def returned(job: Job, worker: str) -> None:
    """A worker is gone: what it held is lent to others."""
    book = _book(job) if job.state.leases.book_json else None
    if book is not None and book.lost(worker):
        job.state.leases = Leases(book.to_json().decode())


def gone_back(job: Job, book_json: str) -> None:
    """The job goes back to a checkpoint: what was done since is to be done again, and nobody holds anything."""
    if not job.state.leases.book_json:
        return
    job.state.leases = Leases(book_json)
    book = _book(job)
    if book is not None:
        for worker in book.holders():
            book.lost(worker)
        job.state.leases = Leases(book.to_json().decode())


def samples_done(job: Job) -> int | None:
    """Samples counted as done; None in synchronous training."""
    book = _book(job)
    return book.samples_done if book is not None else None


def _book(job: Job) -> LeaseBook | None:
    model = job.model
    if model is None or model.training.synchronous:
        return None
    batch = model.training.worker_batch or 1
    text = job.state.leases.book_json
    return LeaseBook.from_json(model.order, batch, text.encode()) if text else LeaseBook(model.order, batch)
