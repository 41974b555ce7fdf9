"""The samples of a global step, and of each worker in it: a function of the step, whatever has happened.

Step k of an epoch takes positions k·B to (k+1)·B of that epoch's permutation of the samples. It is cut into *slices*,
one for each worker of the plan in its order. As nothing but the step's number and the number of slices goes in, workers
may come, go or die between any two steps, and every sample is still taken exactly once in every epoch; a slice whose
worker died is simply computed by another.

Source: DL2 §2.2 (synchronous training keeps the global batch, so that the mini-batch of a worker shrinks as workers are
added). Asynchronous training has no common step; see `sample_leases`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastic_runtime.errors import BadInput

Indices = npt.NDArray[np.int64]

_SEED_BITS = 64


@dataclass(frozen=True, slots=True)
class Position:
    """Where a global step is: `step_in_epoch` of `epoch`, both counted from 0."""

    epoch: int
    step_in_epoch: int
    global_step: int


class SampleOrder:
    """The order in which a job reads its samples, the same in every process that is given the same values.

    Args:
        samples: N, how many the data set has.
        global_batch: B, samples of one step over all workers; the last step of an epoch may have fewer.
        seed: of the shuffling, 0 to 2⁶⁴−1.
        epochs: how often every sample is taken.
        drop_last: leave out an epoch's last step where it would be short; each epoch then leaves out other samples.
        shuffle: False takes the samples as they are numbered, in every epoch.
        smallest_slice: fewest samples of a worker's slice; batch-norm, for one, needs more than one.
        steps: global steps of the whole job, if these are fewer; the epoch in which they end is the last.

    Raises:
        BadInput: values with which there is no step.
    """

    def __init__(
        self,
        samples: int,
        global_batch: int,
        seed: int,
        epochs: int,
        drop_last: bool = False,
        shuffle: bool = True,
        smallest_slice: int = 1,
        steps: int | None = None,
    ) -> None:
        for name, value in (
            ("samples", samples),
            ("global_batch", global_batch),
            ("epochs", epochs),
            ("smallest_slice", smallest_slice),
        ):
            if value < 1:
                raise BadInput(f"{name} is {value}; it has to be 1 or more")
        if not 0 <= seed < 2**_SEED_BITS:
            raise BadInput(f"seed is {seed}; it has to be 0 or more, and below 2**{_SEED_BITS}")
        if drop_last and samples < global_batch:
            raise BadInput(
                f"{samples} samples are fewer than a global batch of {global_batch}, and drop_last leaves out "
                "short ones: no step is left; make the batch smaller"
            )
        if smallest_slice > global_batch:
            raise BadInput(f"smallest_slice is {smallest_slice}, more than the global batch of {global_batch}")
        self.samples = samples
        self.global_batch = global_batch
        self.seed = seed
        self.drop_last = drop_last
        self.shuffle = shuffle
        self.smallest_slice = smallest_slice
        whole, rest = divmod(samples, global_batch)
        self.steps_per_epoch = whole + (1 if rest and not drop_last else 0)
        self.steps = steps
        self.total_steps = epochs * self.steps_per_epoch if steps is None else min(steps, epochs * self.steps_per_epoch)
        self.epochs = -(-self.total_steps // self.steps_per_epoch)
        self._latest: tuple[int, Indices] = (-1, np.empty(0, np.int64))

    def position(self, global_step: int) -> Position:
        """Where a step is.

        Raises:
            IndexError: `global_step` is not of 0 to `total_steps` − 1.
        """
        if not 0 <= global_step < self.total_steps:
            raise IndexError(f"step {global_step} of a job of {self.total_steps} steps")
        epoch, step_in_epoch = divmod(global_step, self.steps_per_epoch)
        return Position(epoch, step_in_epoch, global_step)

    def ends_epoch(self, global_step: int) -> bool:
        """Whether a step is the last of its epoch, or of the job.

        Raises:
            IndexError: as `position`.
        """
        step_in_epoch = self.position(global_step).step_in_epoch
        return step_in_epoch == self.steps_per_epoch - 1 or global_step == self.total_steps - 1

    def batch_size(self, global_step: int) -> int:
        """How many samples a step takes: B, or what an epoch's last step has left."""
        start = self.position(global_step).step_in_epoch * self.global_batch
        return min(self.global_batch, self.samples - start)

    def batch_indices(self, global_step: int) -> Indices:
        """The numbers of the samples that a step takes, of all slices."""
        position = self.position(global_step)
        start = position.step_in_epoch * self.global_batch
        return self.permutation(position.epoch)[start : start + self.global_batch]

    def slice_indices(self, global_step: int, slice_index: int, workers: int) -> Indices:
        """The numbers of the samples in slice `slice_index` of a step that is cut for `workers` workers; may be empty.

        Raises:
            IndexError: there is no such step or slice.
        """
        if not 0 <= slice_index < workers:
            raise IndexError(f"slice {slice_index} of {workers}")
        indices = self.batch_indices(global_step)
        start, stop = slice_bounds(len(indices), workers, self.smallest_slice)[slice_index]
        return indices[start:stop]

    def permutation(self, epoch: int) -> Indices:
        """The samples in the order of an epoch, int64 [N], read-only; the epoch asked for last is kept.

        Random 64-bit keys are sorted, instead of asking numpy for a permutation: its bit generators are promised to
        give the same numbers in every version, its permutations are not.
        """
        known_epoch, indices = self._latest
        if known_epoch != epoch:
            if self.shuffle:
                keys = np.random.Philox(key=np.array([self.seed, epoch], np.uint64)).random_raw(self.samples)
                # Low bits make room for the samples' numbers: sorting such keys is several times faster than argsort.
                low_bits = np.uint64(2 ** self.samples.bit_length() - 1)
                keys = np.sort(keys & ~low_bits | np.arange(self.samples, dtype=np.uint64))
                indices = (keys & low_bits).astype(np.int64)
            else:
                indices = np.arange(self.samples)
            indices = indices.astype(np.int64, copy=False)
            indices.flags.writeable = False
            # One assignment, so that a thread that loads ahead never sees one epoch's number with another's order.
            self._latest = epoch, indices
        return indices


def slice_bounds(batch_size: int, workers: int, smallest_slice: int) -> tuple[tuple[int, int], ...]:
    """Where a batch is cut for its workers: `(start, stop)` for each, as equal as can be; together the whole batch.

    Where the batch is too small to give everybody `smallest_slice` samples, as an epoch's last one may be, the first
    ones share it and the others get nothing; a batch that is itself smaller goes to the first worker.
    """
    shared_by = max(1, min(workers, batch_size // smallest_slice))
    size, longer = divmod(batch_size, shared_by)
    bounds, start = [], 0
    for index in range(workers):
        stop = start if index >= shared_by else start + size + (1 if index < longer else 0)
        bounds.append((start, stop))
        start = stop
    return tuple(bounds)


def check_workers(workers: int, global_batch: int, smallest_slice: int) -> None:
    """Refuse a plan in which a worker would have nothing to compute.

    Raises:
        BadInput: the global batch is too small for so many.
    """
    most = global_batch // smallest_slice
    if not 1 <= workers <= most:
        raise BadInput(
            f"{workers} workers cannot share a global batch of {global_batch} at {smallest_slice} or more samples "
            f"each: ask for {'1' if most == 1 else f'1 to {most}'}"
        )
