"""Speeds learned online by a Gaussian process per type, and raised where they are uncertain.

A few observations say much about their neighbourhood, and many about themselves, where a sum of a few terms
(`parametric.py`) is bound to its form. What a planner is given is not the mean but mean + OPTIMISM standard deviations:
it then tries by itself what may be better, and is corrected where it is not; a planner that follows the mean keeps to
what it knows. Beliefs of this kind need no probes.
Source: Rasmussen & Williams 2006, algorithm 2.1; optimism as in GP-UCB (Srinivas et al. 2010). The prior is in
`process_prior.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from policy_net.domain import MAX_TASKS_PER_ROLE, Job, JobKind, speed_at
from policy_net.exchange.statistics import CLUSTER_COUNT, SpeedStatistic
from policy_net.throughput.beliefs import BeliefsByType
from policy_net.throughput.form import FORMS, SpeedForm
from policy_net.throughput.process_prior import (
    SPREADS,
    Array,
    prior_of_kind,
    prior_of_type,
    triangular_solver,
)
from policy_net.throughput.type_belief import (
    FARTHEST,
    NOISE,
    Cell,
    Cells,
    TypeBelief,
    cell_rows,
    clipped,
    flat_cells,
    read_cells,
    speeds_from_logs,
)

OPTIMISM = 1.0
"""Standard deviations by which a belief is raised; 0.75 and 1.25 were worse."""
DOUBTED_FROM, DOUBTED_DEVIATIONS = math.log(5.0), 2.0
"""A report is doubted if it is this far, in logs, and this many of the belief's standard deviations from it: noise is a
sixth of the first. What one job says of itself would else be believed of all jobs that claim its type."""
MOST_DOUBTED = 10
"""After so many in a row, with none between that agrees, it is the type that has changed. Nor is any doubted before so
many were seen here: others' reports may be of other machines. After a report of nothing the next one is believed:
progress may come in lumps."""


class TypeProcess(TypeBelief):
    """One type's process; the fit is the cells that it was conditioned on, and what follows from them.

    Attributes:
        left_out: by cell, how many observations of a prior are this process's own, and do not count there.
        prior_size: of how many cells others have reported.
        doubted: reports in a row that were too far from what is believed; `MOST_DOUBTED` after one of nothing.
    """

    refit_growth = 0.1

    def __init__(self, form: SpeedForm) -> None:
        super().__init__(form)
        self.left_out: dict[tuple[int, int], int] = {}
        self.prior_size = 0
        self.doubted = 0
        self._conditioned_on: Cells = {}
        self.prior = prior_of_kind(form.kind)
        self._sd = np.zeros(form.shape)
        self._beyond = False

    @classmethod
    def on(cls, seen: TypeBelief) -> TypeProcess:
        """A process of what another model of the type was shown."""
        process = cls(seen.form)
        process.cells = {index: replace(cell) for index, cell in seen.cells.items()}
        process.count = seen.count
        return process

    def observe(self, index: tuple[int, int], samples: float, seconds: float) -> bool:
        """See `TypeBelief`; a report that is doubted is left out."""
        if samples <= 0:
            self.doubted = MOST_DOUBTED
            return super().observe(index, samples, seconds)
        self.doubted = self.doubted + 1 if self._is_doubtful(index, samples / seconds) else 0
        return not 0 < self.doubted <= MOST_DOUBTED and super().observe(index, samples, seconds)

    def _is_doubtful(self, index: tuple[int, int], speed: float) -> bool:
        """Whether a speed is too far from that of the last fit; false where that rests on little, or one is 0.

        After a restore as before it, but for a cell that died or came back since the fit.
        """
        if not self._conditioned_on or self.count < MOST_DOUBTED:
            return False
        believed, sd = float(self.grid_of_last_fit()[index]), float(self._sd[index])
        if not (believed > 0.0 and speed > 0.0):
            return False
        return abs(math.log(speed / believed)) > DOUBTED_FROM + DOUBTED_DEVIATIONS * sd

    def deviation(self, ps: int, workers: int) -> float:
        """Standard deviation of the log speed with one split as of the last fit, at most 1."""
        self.grid()
        return speed_at(self._sd, ps, workers)

    def reach_beyond(self) -> None:
        """Calculate from now on also what more workers than the usual 16 give: some job of the type may have them.

        What the usual numbers give stays the same, bit for bit.
        """
        if not self._beyond:
            self._beyond = True
            self._grid = None

    @property
    def _parts(self) -> tuple[slice, ...]:
        """The parts of the form's cells that are calculated; a cell that was seen is one of them."""
        parts = self.form.parts
        beyond = self._beyond or any(workers > MAX_TASKS_PER_ROLE for _, workers in self._conditioned_on)
        return parts if beyond else parts[:1]

    @property
    def is_blank(self) -> bool:
        """Whether nothing is known but the kind: no report, no sample, and no split that cannot train."""
        return not (self.has_scale or any(cell.dead for cell in self.cells.values()))

    @property
    def has_scale(self) -> bool:
        """Whether anything is known of how many samples the type trains in a second: a sample of it, or a report."""
        return self.prior.of_type or any(cell.samples > 0 for cell in self.cells.values())

    def start_from(self, reports: Iterable[SpeedStatistic]) -> None:
        """Take the prior that others' reports leave, less `left_out`; that of the kind where nothing remains."""
        others = tuple(
            replace(entry, count=entry.count - self.left_out.get((entry.ps, entry.workers), 0))
            for entry in reports
            if entry.count > self.left_out.get((entry.ps, entry.workers), 0)
        )
        self.prior = prior_of_type(others) if others else prior_of_kind(self.form.kind)
        self.prior_size = len(others)
        self._grid = None

    def _fit(self) -> None:
        self._conditioned_on = {
            index: Cell(cell.samples, cell.seconds, cell.count)
            for index, cell in self.cells.items()
            if cell.samples > 0
        }

    def posterior(self) -> tuple[Array, Array]:
        """Mean and standard deviation of the log speed in the form's cells, shape (n,), as of the last fit.

        Of an all-reduce type with up to 16 workers, unless `reach_beyond`; of all cells otherwise.
        """
        prior = self.prior
        spread = prior.spread
        parts = self._parts
        count = parts[-1].stop
        variance = prior.smooth.diagonal()[:count] + spread.cell**2
        if not self._conditioned_on:
            return prior.mean[:count], np.sqrt(variance)
        seen = np.array([prior.position[index] for index in self._conditioned_on])
        speeds, counts = np.array(
            [(cell.samples / cell.seconds, cell.count) for cell in self._conditioned_on.values()]
        ).T
        noise = NOISE**2 / counts
        # The mean of the log lies below the log of the mean, by half the variance.
        residual = np.log(clipped(speeds)) - noise / 2 - prior.mean[seen]
        # What others have reported of a type says its scale too, so that a few noisy reports here only correct it.
        unit = 0.0 if prior.of_type else np.average(residual, weights=1 / (spread.smooth**2 + noise))
        farthest = math.log(FARTHEST)
        residual = np.clip(residual - unit, -farthest, farthest)
        own = np.arange(len(seen))
        covariance = prior.smooth[np.ix_(seen, seen)]
        covariance[own, own] += spread.cell**2 + noise
        cross = prior.smooth[seen]
        cross[own, seen] += spread.cell**2
        lower = np.linalg.cholesky(covariance)
        solve = triangular_solver()
        whitened = solve(lower, residual, lower=True, check_finite=False)
        explained = [solve(lower, cross[:, part], lower=True, check_finite=False) for part in parts]
        mean = _joined([part.T @ whitened for part in explained])
        variance = np.maximum(variance - _joined([(part**2).sum(axis=0) for part in explained]), 0.0)
        return prior.mean[:count] + unit + np.clip(mean, -2 * farthest, 2 * farthest), np.sqrt(variance)

    def _fitted_speeds(self) -> Array:
        mean, sd = self.posterior()
        self._sd = self.on_grid(np.minimum(sd, 1.0))
        if self.prior.of_type and not self._conditioned_on:
            return self.on_grid(speeds_from_logs(mean + OPTIMISM * self.prior.sd_of_shape[: len(mean)]))
        # Nothing is known of the scale of a type of which no speed was seen: that is no reason to expect much of it.
        return self.on_grid(speeds_from_logs(mean + OPTIMISM * sd if self._conditioned_on else mean))

    def on_grid(self, values: Array) -> Array:
        """Values of the form's first n cells, shape (n,), on a grid [ps, workers]; zero elsewhere."""
        grid = np.zeros(self.form.shape)
        part = grid[self.form.cells]
        part[:, : len(values) // len(part)] = values.reshape(len(part), -1)
        return grid

    def digest(self) -> bytes:
        """See `TypeBelief`; with what is left out of the prior, and doubts.

        A count of `MOST_DOUBTED` is left out: logs from before there were doubts have reports of nothing, too.
        """
        counts = self.doubted not in {0, MOST_DOUBTED}
        if not (self.left_out or counts):
            return super().digest()
        rows = [(ps, workers, count) for (ps, workers), count in sorted(self.left_out.items())]
        doubts = [(0, 0, self.doubted)] if counts else []
        return super().digest() + np.array([*rows, *doubts], dtype="<f8").tobytes()

    def _fit_snapshot(self) -> dict[str, object]:
        fit: dict[str, object] = {"conditioned_on": cell_rows(self._conditioned_on)}
        if self.left_out:
            fit["left_out"] = [[ps, workers, count] for (ps, workers), count in sorted(self.left_out.items())]
        if self.doubted:
            fit["doubted"] = self.doubted
        return fit

    def _fit_figures(self) -> list[float]:
        return flat_cells(self._conditioned_on)

    def _restore_fit(self, entry: Any) -> None:
        self._conditioned_on = read_cells(self.form, entry["conditioned_on"])
        if any(cell.samples <= 0 for cell in self._conditioned_on.values()):
            raise ValueError("a fit to a cell without a sample")
        self.doubted = int(entry.get("doubted", 0))
        if self.doubted < 0:
            raise ValueError(f"{self.doubted} doubted reports")
        for ps, workers, count in entry.get("left_out", []):
            if not (self.form.has_cell(ps, workers) and count > 0):
                raise ValueError(f"impossible share in a prior {[ps, workers, count]}")
            self.left_out[int(ps), int(workers)] = int(count)


def _joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


@cache
def hoped_for_speeds(kind: JobKind) -> Array:
    """Speeds of a type of which nothing was seen, in samples/s, of its kind's shape [ps, workers], read-only.

    Optimistic as any belief, in what is there to be hoped for: how much faster than with the smallest split it trains.
    """
    prior = prior_of_kind(kind)
    grid = TypeProcess(FORMS[kind]).on_grid(speeds_from_logs(prior.mean + OPTIMISM * prior.sd_of_ratios()))
    grid.setflags(write=False)
    return grid


class GaussianProcessBeliefs(BeliefsByType[TypeProcess]):
    """`Beliefs` by Gaussian processes, optimistic where they are uncertain."""

    optimistic = True

    def __init__(self, priors: Sequence[SpeedStatistic] = ()) -> None:
        """`priors` are what other clusters have reported; without, every type starts from the prior of its kind."""
        super().__init__(TypeProcess)
        triangular_solver()  # here rather than in an agent's first decision, which has a deadline
        by_type: dict[str, list[SpeedStatistic]] = {}
        for entry in priors:
            by_type.setdefault(entry.job_type, []).append(entry)
        self._priors = by_type
        self._beyond: set[str] = set()
        self._begin_from_priors()

    def introduce(self, jobs: Iterable[Job]) -> None:
        """See `BeliefsByType`; reports on a type of another kind are of another type, and forgotten.

        Where a job may have more than the usual number of workers, it is from then on believed what they give.
        """
        for job in jobs:
            if job.max_workers > MAX_TASKS_PER_ROLE or job.requested.workers > MAX_TASKS_PER_ROLE:
                self._beyond.add(job.job_type)
            if job.job_type in self._kinds:
                continue
            self._kinds[job.job_type] = job.kind
            prior = self._priors.get(job.job_type)
            if prior is not None and prior[0].kind is not job.kind:
                del self._priors[job.job_type]
                if self._types[job.job_type].count:
                    process = self._types[job.job_type]
                    process.start_from(())  # as after a restore
                else:
                    del self._types[job.job_type]

    def reach_beyond(self, job_types: Iterable[str]) -> None:
        """Believe from now on also what more workers than the usual number give jobs of these types."""
        self._beyond.update(job_types)

    def grid(self, job_type: str) -> Array:
        """See `BeliefsByType`."""
        self._process_of(job_type)
        return super().grid(job_type)

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """See `BeliefsByType`; the priors stay those of this object."""
        super().restore(snapshot)
        self._begin_from_priors()

    def begin_from_observations(self, other: BeliefsByType[Any]) -> None:
        """Believe on the ground of what other beliefs of this cluster have seen; what was seen here is replaced."""
        self._types = {job_type: TypeProcess.on(belief) for job_type, belief in other.beliefs_by_type().items()}
        self._begin_from_priors()

    @property
    def prior_size(self) -> int:
        """Over how many cells others' reports say something here."""
        return sum(process.prior_size for process in list(self._types.values()))

    def leave_out_own(self, shared: Callable[[str], bool] = lambda _: True) -> None:
        """Take what was observed here so far out of the priors: this cluster has reported it, and it is counted here.

        A cell of a prior loses as many observations as this cluster can have had in it, and goes where none is left.
        Its mean stays: a merged mean cannot be taken apart. So no observation is given more weight than it has, though
        of a cell that others saw too, one's own share is within the others' mean.

        Args:
            shared: whether a type is shared with others at all.
        """
        for job_type, process in self._types.items():
            process.left_out = (
                {index: min(cell.count, CLUSTER_COUNT) for index, cell in process.cells.items() if cell.samples > 0}
                if shared(job_type)
                else {}
            )
        self._begin_from_priors()

    def go_on_from(self, checkpoint: Mapping[str, Any]) -> None:
        """See `BeliefsByType`; reports that were forgotten by then, as being of another kind, are forgotten again."""
        for job_type, kind in dict(checkpoint.get("kinds", {})).items():
            if job_type in self._priors and self._priors[job_type][0].kind.value != kind:
                del self._priors[job_type]
        super().go_on_from(checkpoint)

    def deviation(self, job_type: str, ps: int, workers: int) -> float:
        """Standard deviation of the log of a type's speed with one split, as of the last fit."""
        process = self._process_of(job_type)
        if process is None:
            spread = SPREADS[self._kinds.get(job_type, JobKind.PS)]
            return math.hypot(spread.smooth, spread.cell)
        return process.deviation(ps, workers)

    def has_scale(self, job_type: str) -> bool:
        """Whether anything is known of how many samples a type trains in a second."""
        process = self._types.get(job_type)
        return process is not None and process.has_scale

    def _process_of(self, job_type: str) -> TypeProcess | None:
        process = self._types.get(job_type)
        if process is not None and job_type in self._beyond:
            process.reach_beyond()
        return process

    def _begin_from_priors(self) -> None:
        for job_type, reports in self._priors.items():
            kind = reports[0].kind
            process = self._types.get(job_type)
            if process is None:
                process = self._types[job_type] = TypeProcess(FORMS[kind])
            if process.form.kind is kind:
                process.start_from(reports)

    def posterior(self, job_type: str) -> tuple[Array, Array]:
        """What is believed without optimism, as of the last fit.

        Returns:
            The median speed in samples/s and the standard deviation of its logarithm, both of the type's shape [ps,
            workers] and 0 where the type cannot train; dead cells have speed 0. Of an all-reduce type beyond the usual
            16 workers only where some job of it may have them.
        """
        process = self._process_of(job_type)
        if process is None:
            process = TypeProcess(FORMS[self._kinds.get(job_type, JobKind.PS)])
        believed = process.grid()
        mean, sd = process.posterior()
        return np.where(believed > 0, process.on_grid(speeds_from_logs(mean)), 0.0), process.on_grid(sd)
