"""Speeds learned online by a Gaussian process per type, and raised where they are uncertain.

What a planner is given is not the mean but mean + OPTIMISM standard deviations: it then tries by itself what may be
better, and is corrected where it is not; a planner that follows the mean keeps to what it knows. Beliefs of this kind
need no probes.
Source: optimism as in GP-UCB (Srinivas et al. 2010); the process is in `type_process.py`, its prior in
`process_prior.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from policy_net.domain import Job, JobKind
from policy_net.exchange.statistics import CLUSTER_COUNT, SpeedStatistic
from policy_net.throughput.by_type import BeliefsByType
from policy_net.throughput.form import FORMS
from policy_net.throughput.process_prior import SPREADS, Array
from policy_net.throughput.type_process import TypeProcess


class GaussianProcessBeliefs(BeliefsByType[TypeProcess]):
    """`Beliefs` by Gaussian processes, optimistic where they are uncertain."""

    optimistic = True

    def __init__(self, priors: Sequence[SpeedStatistic] = ()) -> None:
        """`priors` are what other clusters have reported; without, every type starts from the prior of its kind."""
        super().__init__(TypeProcess)
        by_type: dict[str, list[SpeedStatistic]] = {}
        for entry in priors:
            by_type.setdefault(entry.job_type, []).append(entry)
        self._priors = by_type
        self._begin_from_priors()

    def introduce(self, jobs: Iterable[Job]) -> None:
        """See `Beliefs`; reports on a type of another kind are of another type, and forgotten."""
        for job in jobs:
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

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """See `Beliefs`; the priors stay those of this object."""
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
        """Take what was observed here so far out of the priors: this cluster has told it, and it is counted here.

        A cell of a prior loses as many observations as this cluster can have had in it, and goes where none is left.
        Its mean stays: a merged mean cannot be taken apart. So no observation is given more weight than it has, though
        of a cell that others saw too, one's own share is within the others' mean.

        Args:
            shared: whether a type is told to others at all.
        """
        for job_type, process in self._types.items():
            process.left_out = (
                {index: min(cell.count, CLUSTER_COUNT) for index, cell in process.cells.items() if cell.samples > 0}
                if shared(job_type)
                else {}
            )
        self._begin_from_priors()

    def go_on_from(self, checkpoint: Mapping[str, Any]) -> None:
        """See `Beliefs`; reports that were forgotten by then, as being of another kind, are forgotten again."""
        for job_type, kind in dict(checkpoint.get("kinds", {})).items():
            if job_type in self._priors and self._priors[job_type][0].kind.value != kind:
                del self._priors[job_type]
        super().go_on_from(checkpoint)

    def deviation(self, job_type: str, ps: int, workers: int) -> float:
        """Standard deviation of the log of a type's speed with one split, as of the last fit."""
        process = self._types.get(job_type)
        if process is None:
            spread = SPREADS[self._kinds.get(job_type, JobKind.PS)]
            return math.hypot(spread.smooth, spread.cell)
        return process.deviation(ps, workers)

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
            The median speed in samples/s and the standard deviation of its logarithm, both of shape (17, 17) [ps,
            workers] and 0 where the type cannot train; dead cells have speed 0.
        """
        process = self._types.get(job_type)
        if process is None:
            process = TypeProcess(FORMS[self._kinds.get(job_type, JobKind.PS)])
        believed = process.grid()
        mean, sd = process.posterior()
        return np.where(believed > 0, process.on_grid(np.exp(mean)), 0.0), process.on_grid(sd)
