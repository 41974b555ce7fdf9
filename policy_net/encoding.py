"""A batch of jobs as the numbers that the network sees.

Legend: J jobs a batch, L type columns, F = J·(L + 5) features.
Source: DL2 §4.1 (x type, d slots run, e remaining epochs, r dominant share, w workers, u parameter servers).
Deviation: d and e go through log1p and all columns are scaled to about [0, 1], since real jobs span five orders of
magnitude in length; the paper feeds raw figures.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import MAX_TASKS_PER_ROLE, ClusterState, Job
from policy_net.exchange.spec import SCALARS_PER_JOB, PolicySpec

SLOTS_RUN_SCALE = float(1.0 / np.log1p(100.0))
"""A hundred slots of running map to 1."""

REMAINING_EPOCHS_SCALE = float(1.0 / np.log1p(30_000.0))
"""The longest of DL2's jobs (28,800 epochs) maps to about 1."""

TASK_SCALE = 1.0 / MAX_TASKS_PER_ROLE


class BatchEncoder:
    """Turns up to J jobs into the network's input; what a grant changes are three columns, named here.

    The scalars of column i start at `scalar_offset(i)` in the order d, e, r, w, u.
    """

    def __init__(self, spec: PolicySpec) -> None:
        self.spec = spec
        self.row_width = spec.type_columns + SCALARS_PER_JOB
        self._column_of_type = {job_type: column for column, job_type in enumerate(spec.job_types)}

    def scalar_offset(self, column: int) -> int:
        """Where the five scalars of the job in this column begin."""
        return column * self.row_width + self.spec.type_columns

    def encode(self, jobs: Sequence[Job], state: ClusterState) -> NDArray[np.float32]:
        """The input before anything is granted: r, w and u are zero; absent jobs are all zero.

        Returns:
            float32, shape (F,).
        """
        features_F = np.zeros(self.spec.feature_count, dtype=np.float32)
        for column, job in enumerate(jobs):
            start = column * self.row_width
            features_F[start + self._column_of_type.get(job.job_type, 0)] = 1.0
            scalars = self.scalar_offset(column)
            features_F[scalars] = SLOTS_RUN_SCALE * np.log1p(job.run_seconds / state.slot_seconds)
            features_F[scalars + 1] = REMAINING_EPOCHS_SCALE * np.log1p(job.remaining_epochs)
        return features_F
