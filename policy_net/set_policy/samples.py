"""What a learner needs of a decision's picks, small enough to keep a thousand decisions of.

Legend: J jobs, M picks, F inputs of a job.
A pick changes the step of one job only, so the steps before the first pick and the one change of every pick say it all;
`log_gains` spreads them out again.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SetSamples:
    """The picks of one decision, as they were made.

    Attributes:
        inputs_JF: what the residual saw of every job.
        first_J2: log score without tilt, and log share of the best speed, of every job's first step; −inf where a job
            has none.
        next_M2: the same of the picked job's next step.
        actions_M: the picks as actions of 3J + 1: what the step gives, and to which job.
        behaviour_M: with which probability, masks and exploration included.
        jobs_M: which job was picked.
        believed_J2: believed speeds in samples/s of every job: alone at its best, and under the plan without chance.
        chosen_M: whether it was a choice, made with chance: of several steps, none of them for certain.
    """

    inputs_JF: Array
    first_J2: Array
    next_M2: Array
    actions_M: Integers
    behaviour_M: Array
    jobs_M: Integers
    chosen_M: Flags
    believed_J2: Array

    def __len__(self) -> int:
        return int(self.chosen_M.sum())

    @property
    def form(self) -> Hashable:
        """See `Samples.form`."""
        return ("set", self.inputs_JF.shape[1])

    @property
    def finite(self) -> bool:
        """See `Samples.finite`."""
        return bool(np.isfinite(self.inputs_JF).all() and np.isfinite(self.behaviour_M).all())

    def log_gains(self) -> tuple[Array, Array]:
        """Log score without tilt, and log share of the best speed, of every job's step at every pick; shape (M, J).

        The score is −inf, and the share 0, where a job has no step.
        """
        picks, jobs = len(self.jobs_M), len(self.inputs_JF)
        latest = np.full((picks, jobs), -1)
        # The pick that a job's step stems from is the job's last one before.
        latest[np.arange(1, picks), self.jobs_M[:-1]] = np.arange(picks - 1)
        latest = np.maximum.accumulate(latest, axis=0)
        gains_MJ2 = np.where((latest < 0)[..., None], self.first_J2, self.next_M2[latest])
        score_MJ = gains_MJ2[..., 0]
        return score_MJ, np.where(np.isfinite(score_MJ), gains_MJ2[..., 1], 0.0)
