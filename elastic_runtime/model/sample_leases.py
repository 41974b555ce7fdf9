"""Leases of samples in asynchronous training: ranges of an epoch's order, given to workers and told done.

Asynchronous workers have no common step, so the samples cannot follow from one. The coordinator leases consecutive
ranges; what a worker that left or died had not told done is leased again, before anything new. When an epoch has been
leased out the next one begins, so that nobody waits for the slowest; an epoch has ended when all of it is done.

Guaranteed: in every epoch each sample is *counted* done exactly once, whoever joins, leaves or dies. Its gradient is
applied at least once; it is applied again only where a worker pushed it and died (or was taken for dead) before that
was told here. Workers should therefore tell after every batch. What a worker tells of a lease that was taken from it is
not counted. A lease holds after a restart of the coordinator if `to_json` was on disk before the worker was answered.

Source: DL2 §2.2 (asynchronous training keeps the batch of each worker).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elastic_runtime.errors import BadInput
from elastic_runtime.model.plain_fields import count_of

if TYPE_CHECKING:  # who only converts messages waits for no NumPy
    from elastic_runtime.model.data_shards import SampleOrder

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class SampleLease:
    """Positions `start` to `stop` (exclusive) of an epoch's order, for one worker to read in batches."""

    id: int
    epoch: int
    start: int
    stop: int


@dataclass(slots=True)
class _Range:
    epoch: int
    start: int
    stop: int


@dataclass(slots=True)
class _OpenLease:
    worker: str
    left: _Range


class SampleLeaseTable:
    """Leases, finished samples, and the next ones; not safe for threads.

    Args:
        order: of the samples; its global batch is not used.
        batch: samples of a worker's batch. With `drop_last` an epoch ends before a batch that would be short.

    Raises:
        BadInput: a batch of no samples, or one that leaves nothing to read.
    """

    def __init__(self, order: SampleOrder, batch: int) -> None:
        if batch < 1:
            raise BadInput(f"batch is {batch}; it has to be 1 or more")
        if order.drop_last and order.samples < batch:
            raise BadInput(
                f"{order.samples} samples are fewer than a batch of {batch}, and drop_last leaves out short ones: "
                "nothing is left to read; make the batch smaller"
            )
        self._order = order
        self._batch = batch
        self._next_id = 1
        self._next = _Range(0, 0, self._epoch_stop(0))
        self._returned: list[_Range] = []
        self._open_leases: dict[int, _OpenLease] = {}

    def lease(self, worker: str, batches: int) -> SampleLease | None:
        """The next at most `batches` batches for a worker, of one epoch.

        None: all is leased. Unless `finished`, ask again later: a worker that holds some may still fail.
        """
        if batches < 1:
            raise ValueError(f"a lease of {batches} batches")
        source = self._returned[0] if self._returned else self._next
        if source.epoch >= self._order.epochs:
            return None
        stop = min(source.stop, source.start + batches * self._batch)
        lease = SampleLease(self._next_id, source.epoch, source.start, stop)
        self._next_id += 1
        self._open_leases[lease.id] = _OpenLease(worker, _Range(lease.epoch, lease.start, stop))
        source.start = stop
        if source.start == source.stop:
            if self._returned:
                self._returned.pop(0)
            else:
                self._next = _Range(source.epoch + 1, 0, self._epoch_stop(source.epoch + 1))
        return lease

    def done(self, lease_id: int, upto: int) -> int:
        """Count a lease's positions below `upto` as done; telling the same again changes nothing.

        Returns:
            how many samples this counted: none if they were told before, or the lease was taken from its worker.

        Raises:
            BadInput: `upto` is not of this lease, or no such lease was ever given.
        """
        lease = self._open_leases.get(lease_id)
        if lease is None:
            if not 0 < lease_id < self._next_id:
                raise BadInput(f"samples told done under lease {lease_id}, which was never given")
            return 0
        if upto > lease.left.stop:
            raise BadInput(f"samples told done up to {upto} under lease {lease_id}, which ends at {lease.left.stop}")
        counted = max(0, upto - lease.left.start)
        lease.left.start += counted
        if lease.left.start == lease.left.stop:
            del self._open_leases[lease_id]
        return counted

    def leases_of(self, worker: str) -> list[SampleLease]:
        """What a worker holds: of each lease the positions that are not told done yet."""
        return [
            SampleLease(lease_id, lease.left.epoch, lease.left.start, lease.left.stop)
            for lease_id, lease in self._open_leases.items()
            if lease.worker == worker
        ]

    def holders(self) -> list[str]:
        """The workers that hold something."""
        return list(dict.fromkeys(lease.worker for lease in self._open_leases.values()))

    def lost(self, worker: str) -> int:
        """Take back all that a worker holds, as it left or died, to be leased first.

        Returns:
            how many samples.
        """
        lost = [lease_id for lease_id, lease in self._open_leases.items() if lease.worker == worker]
        ranges = [self._open_leases.pop(lease_id).left for lease_id in lost]
        samples = sum(left.stop - left.start for left in ranges)
        self._returned = _merged([*self._returned, *ranges])
        return samples

    @property
    def epochs_done(self) -> int:
        """How many epochs have ended: every sample of theirs is done."""
        return min([self._next.epoch, *(left.epoch for left in self._open())])

    @property
    def finished(self) -> bool:
        """Whether all epochs have ended."""
        return self.epochs_done == self._order.epochs

    @property
    def samples_done(self) -> int:
        """How many samples were counted done, over all epochs."""
        last = self._order.epochs - 1
        leased = min(self._next.epoch, last) * self._epoch_stop(-1) + self._next.start
        leased += self._epoch_stop(last) if self._next.epoch > last else 0
        return leased - sum(left.stop - left.start for left in self._open())

    def to_json(self) -> bytes:
        """What `from_json` reads: JSON in UTF-8, for the journal; its size grows with the leases held, not with N."""
        content = {
            "format": _FORMAT,
            **self._terms(),
            "next_id": self._next_id,
            "next": [self._next.epoch, self._next.start],
            "returned": [[left.epoch, left.start, left.stop] for left in self._returned],
            "held": [
                [lease_id, lease.worker, lease.left.epoch, lease.left.start, lease.left.stop]
                for lease_id, lease in self._open_leases.items()
            ],
        }
        return json.dumps(content, separators=(",", ":")).encode()

    @staticmethod
    def from_json(order: SampleOrder, batch: int, data: bytes) -> SampleLeaseTable:
        """The table that `to_json` wrote, for the same order and batch.

        Raises:
            BadInput: it is none, was changed, or belongs to a job with other samples.
        """
        table = SampleLeaseTable(order, batch)
        try:
            content = json.loads(data)
            if content["format"] != _FORMAT:
                raise BadInput(f"leases of format {content['format']!r}, and this version reads {_FORMAT}; update it")
            for name, value in table._terms().items():
                if content[name] != value:
                    raise BadInput(f"leases of a job with {name} {content[name]}, and this job has {value}")
            epoch, start = (count_of(value) for value in content["next"])
            table._next_id = count_of(content["next_id"])
            table._next = _Range(epoch, start, table._epoch_stop(epoch))
            table._returned = [_Range(*(count_of(value) for value in row)) for row in content["returned"]]
            table._open_leases = {
                count_of(lease_id): _OpenLease(str(worker), _Range(*(count_of(value) for value in row)))
                for lease_id, worker, *row in content["held"]
            }
            if len(table._open_leases) != len(content["held"]):
                raise BadInput("not the leases of a job: two have the same number; they were changed")
            table._check()
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BadInput(f"not the leases of a job: {error or type(error).__name__}; they were changed") from error
        return table

    def _epoch_stop(self, epoch: int) -> int:
        """End of an epoch; the last one of a job with a limit of steps may end early."""
        order, batch = self._order, self._batch
        whole = order.samples - order.samples % batch if order.drop_last else order.samples
        if order.steps is None or epoch != order.epochs - 1:
            return whole
        return min(whole, (order.steps - epoch * -(-whole // batch)) * batch)

    def _terms(self) -> dict[str, int | bool]:
        order = self._order
        return {
            "samples": order.samples,
            "batch": self._batch,
            "seed": order.seed,
            "epochs": order.epochs,
            "drop_last": order.drop_last,
            "shuffle": order.shuffle,
        }

    def _open(self) -> list[_Range]:
        return [*self._returned, *(lease.left for lease in self._open_leases.values())]

    def _check(self) -> None:
        """Nothing is open twice, and nothing before it was leased."""
        if not all(0 < lease_id < self._next_id for lease_id in self._open_leases):
            raise ValueError(f"the next lease has number {self._next_id}, and some held ones have a later one")
        ends = (self._next.epoch, self._next.start)
        if ends > (self._order.epochs, 0) or self._next.start >= self._epoch_stop(self._next.epoch):
            raise ValueError(f"leased up to epoch {ends[0]}, position {ends[1]}")
        before = (0, 0)
        for left in sorted(self._open(), key=_place):
            after = (left.epoch, left.stop)
            if not before <= _place(left) < after <= ends or left.stop > self._epoch_stop(left.epoch):
                raise ValueError(f"epoch {left.epoch}, positions {left.start} to {left.stop} leased twice or too early")
            before = after


def _place(left: _Range) -> tuple[int, int]:
    return (left.epoch, left.start)


def _merged(ranges: Iterable[_Range]) -> list[_Range]:
    """In order, with what adjoins as one, so that many deaths leave no crumbs behind."""
    merged: list[_Range] = []
    for left in sorted(ranges, key=_place):
        if merged and merged[-1].epoch == left.epoch and merged[-1].stop == left.start:
            merged[-1].stop = left.stop
        else:
            merged.append(left)
    return merged
