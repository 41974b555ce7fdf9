"""Forms of time per sample: how it depends on the number of tasks, for every kind of job, as a sum of terms, each ≥ 0.

With p parameter servers and w workers:

- `PS`, in step: a/w + b + c·w/p + d·w + e·p. Gradient computation, shared; the constant part of a step; traffic into
  each server; traffic per worker; traffic per server. Source: Optimus (EuroSys 2018) §3.2, synchronous training.
- `ASYNC`, each worker at its own pace: a/w + b + c/p + d·p/w. Work of the workers; what does not shrink; traffic into
  each server, which all workers share; traffic per server. Source: Optimus §3.2, asynchronous training (per sample).
- `ALLREDUCE`, p = 0: a/w + b + d·w. Mean error 3% on the measured scaling of ElasticFlow's models from 1 to 16 GPUs at
  a fixed global batch; a term log w instead of w is no better, both together 2.9%. Such a job may have up to 64
  workers, if it asks for more than the usual 16; what is calculated for those is calculated apart, so that the rest is
  the same bit for bit whether or not anybody asks.

Every term is 1 at the smallest allocation.

The prior of a type that was never observed has the same form: a few pseudo-observations, spread over small and large
allocations, of one shape: more tasks help, with diminishing returns. It is deliberately on the optimistic side of what
was measured, so that a scheduler tries more than one task of a role and learns from it; a pessimistic prior would
confirm itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import MAX_TASKS_PER_ROLE, JobKind

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FitPrior:
    """Pseudo-observations for a type that nobody has seen.

    Attributes:
        shape: the coefficients of the form's terms, for time per sample relative to the smallest allocation, at which
            every term is 1; they add up to 1.
        cells: the (p, w) of the pseudo-observations.
        samples_per_second: speed at the smallest allocation of a type without any observation. Source: the geometric
            mean of DL2's eight models, 103; it only ranks an unseen type among others until its first observation sets
            its scale.
        relative_error: how far a pseudo-observation may be off; an observed cell counts with its own, smaller error.
    """

    shape: tuple[float, ...]
    cells: tuple[tuple[int, int], ...]
    samples_per_second: float = 100.0
    relative_error: float = 2.0

    def times(self, features: Array) -> Array:
        """Time per sample relative to the smallest allocation, shape (n,), for feature rows of shape (n, terms)."""
        return np.asarray(features @ np.array(self.shape), dtype=np.float64)


@dataclass(frozen=True)
class SpeedForm:
    """The terms of one kind of job, and what is believed of their size beforehand.

    Attributes:
        features: the terms, shape (n, terms), for n pairs of (PSs, workers).
    """

    kind: JobKind
    features: Callable[[Array, Array], Array]
    prior: FitPrior

    def has_cell(self, ps: int, workers: int) -> bool:
        """Whether a job of this kind can train with so many tasks: at most 16 of each, or 64 workers alone."""
        has_ps = 0 < ps <= self.kind.most_ps if self.kind.uses_ps else ps == 0
        return has_ps and 0 < workers <= self.kind.most_workers

    @property
    def shape(self) -> tuple[int, int]:
        """Of a grid [ps, workers]: (17, 17), or (1, 65) without servers."""
        return self.kind.most_ps + 1, self.kind.most_workers + 1

    @property
    def terms(self) -> int:
        """How many coefficients the form has."""
        return len(self.prior.shape)

    @cached_property
    def cells(self) -> tuple[slice, slice]:
        """The part of a grid [ps, workers] in which such a job trains."""
        rows, columns = self.shape
        return slice(1 if self.kind.uses_ps else 0, rows), slice(1, columns)

    @cached_property
    def parts(self) -> tuple[slice, ...]:
        """The n cells as they are calculated: those of the usual numbers of workers, then all larger ones, if any."""
        count = len(self.cell_features)
        usual = count if self.kind.uses_ps else MAX_TASKS_PER_ROLE
        return (slice(0, usual), slice(usual, count)) if usual < count else (slice(0, usual),)

    @cached_property
    def unseen_coefficients(self) -> Array:
        """Seconds per sample of the terms for a type of which nothing is known, shape (terms,)."""
        return np.array(self.prior.shape) / self.prior.samples_per_second

    @cached_property
    def cell_features(self) -> Array:
        """The terms in every cell of `cells`, shape (PSs × workers, terms)."""
        ps, workers = (axis[self.cells].ravel().astype(np.float64) for axis in np.indices(self.shape))
        return self.features(ps, workers)

    @cached_property
    def row_of(self) -> Mapping[tuple[int, int], int]:
        """Of every cell (PSs, workers) its row in `cell_features` and `expected_times`."""
        ps, workers = (axis[self.cells].ravel().tolist() for axis in np.indices(self.shape))
        return {cell: row for row, cell in enumerate(zip(ps, workers, strict=True))}

    @cached_property
    def expected_times(self) -> Array:
        """What the prior says of every cell, relative to the smallest, shape (PSs × workers,)."""
        return self.cell_times(np.array(self.prior.shape))

    def cell_times(self, coefficients: Array) -> Array:
        """Seconds per sample in every cell of `cells`, shape (PSs × workers,)."""
        return np.concatenate([self.cell_features[part] @ coefficients for part in self.parts])

    @cached_property
    def prior_rows(self) -> tuple[Array, Array]:
        """The pseudo-observations as least-squares rows, shapes (n, terms) and (n,), weighted by their error."""
        ps, workers = (np.array(axis, dtype=np.float64) for axis in zip(*self.prior.cells, strict=True))
        features = self.features(ps, workers)
        rows = features / self.prior.times(features)[:, None] / self.prior.relative_error
        return rows, np.full(len(rows), 1 / self.prior.relative_error)

    @cached_property
    def prior_moments(self) -> tuple[Array, Array]:
        """The same as normal equations, shapes (terms, terms) and (terms,)."""
        rows, targets = self.prior_rows
        return rows.T @ rows, rows.T @ targets


def form_grid(form: SpeedForm, coefficients: Array) -> Array:
    """Speeds of a fitted form, of its shape [ps, workers]; zero where the kind cannot train."""
    grid = np.zeros(form.shape)
    part = grid[form.cells]
    part[:] = (1 / form.cell_times(coefficients)).reshape(part.shape)
    return grid


def _synchronous(ps: Array, workers: Array) -> Array:
    return np.stack([1 / workers, np.ones_like(workers), workers / ps, workers, ps], axis=1)


def _asynchronous(ps: Array, workers: Array) -> Array:
    return np.stack([1 / workers, np.ones_like(workers), 1 / ps, ps / workers], axis=1)


def _allreduce(ps: Array, workers: Array) -> Array:  # noqa: ARG001  (there are no servers)
    return np.stack([1 / workers, np.ones_like(workers), workers], axis=1)


_SPREAD = ((1, 1), (4, 1), (1, 4), (4, 4), (16, 1), (1, 16), (16, 16))

FORMS: Mapping[JobKind, SpeedForm] = MappingProxyType(
    {
        form.kind: form
        for form in (
            SpeedForm(JobKind.PS, _synchronous, FitPrior((0.25, 0.45, 0.28, 0.02, 0.0), _SPREAD)),
            SpeedForm(JobKind.ASYNC, _asynchronous, FitPrior((0.55, 0.1, 0.35, 0.0), _SPREAD)),
            SpeedForm(JobKind.ALLREDUCE, _allreduce, FitPrior((0.82, 0.17, 0.01), ((0, 1), (0, 4), (0, 16)))),
        )
    }
)
"""By kind. The shapes are a little steeper than the measured mean: for all-reduce jobs (0.78, 0.22, 0.006)."""
