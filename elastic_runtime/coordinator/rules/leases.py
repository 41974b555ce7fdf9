"""Leases of samples in asynchronous training: lent to workers, and lent anew when one is lost or the job goes back.

What was lent is journaled before the worker hears of it, with `sample_leases` as the book. A checkpoint remembers the
book as it is when the checkpoint is decided: whatever was told done by then is in every block that is copied for it.
"""

from __future__ import annotations

from elastic_runtime.coordinator.rules.job import CoordinatedJob
from elastic_runtime.coordinator.rules.phases import withdraw_proposal
from elastic_runtime.coordinator.rules.state import Leases
from elastic_runtime.errors import BadInput
from elastic_runtime.model.sample_leases import SampleLease, SampleLeaseTable

_MOST_BATCHES = 1000


def lend(
    job: CoordinatedJob, worker: str, incarnation: int, generation: int, done: tuple[int, ...], batches: int
) -> tuple[tuple[SampleLease, ...], bool]:
    """Count leases as done, and lend more until the worker holds `batches`; all that it holds, and whether all is done.

    Asked again, the answer is the same, so that none is lost with an answer. Each batch is a lease of its own: what a
    lost worker had told done is known batch by batch. Nothing new and not finished: ask again later.

    Raises:
        BadInput: the job trains synchronously, or the numbers are none.
    """
    book = _book(job)
    if book is None:
        raise BadInput(f"job {job.settings.job} trains synchronously: its samples follow from the step")
    if batches > _MOST_BATCHES:
        raise BadInput(f"{batches} batches at once; ask for at most {_MOST_BATCHES}")
    task = job.task(worker)
    if not job.is_training or task is None or not task.live or task.incarnation != incarnation:
        return (), False
    if generation != job.state.generation.number:
        return (), False
    stops = {mine.id: mine.stop for mine in book.leases_of(worker)}
    changed = sum(book.done(number, stops[number]) for number in done if number in stops) > 0
    over = job.state.generation.ends_at is not None
    if worker in job.plan().workers and job.halt() is None and not over:
        short = batches - len(book.leases_of(worker))
        while short > 0 and book.lease(worker, 1) is not None:
            short -= 1
            changed = True
    if changed:
        job.state.leases = Leases(book.to_json().decode())
    if book.finished:
        withdraw_proposal(job.state)
        job.state.set_generation(ended=True)
    return tuple(book.leases_of(worker)), book.finished or over


def on_worker_lost(job: CoordinatedJob, worker: str) -> None:
    """Lend to others what a lost worker held."""
    book = _book(job) if job.state.leases.book_json else None
    if book is not None and book.lost(worker):
        job.state.leases = Leases(book.to_json().decode())


def go_back(job: CoordinatedJob, book_json: str) -> None:
    """Go back to a checkpoint's leases: batches computed since then are computed again, and no worker has a lease."""
    if not job.state.leases.book_json:
        return
    job.state.leases = Leases(book_json)
    book = _book(job)
    if book is not None:
        for worker in book.holders():
            book.lost(worker)
        job.state.leases = Leases(book.to_json().decode())


def samples_done(job: CoordinatedJob) -> int | None:
    """Samples counted as done; None in synchronous training."""
    book = _book(job)
    return book.samples_done if book is not None else None


def _book(job: CoordinatedJob) -> SampleLeaseTable | None:
    model = job.model
    if model is None or model.training.synchronous:
        return None
    batch = model.training.worker_batch or 1
    text = job.state.leases.book_json
    return (
        SampleLeaseTable.from_json(model.order, batch, text.encode()) if text else SampleLeaseTable(model.order, batch)
    )
