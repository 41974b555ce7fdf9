"""Beliefs of a heuristic in Optimus's form as the compiled code holds them, and back again.

It counts what is seen and fits in the reference's order of sums, so that both are the same bit for bit, and so is what
the policy goes on with afterwards. Where rounding is in the way of a fit, the reference's own code makes it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import JobKind
from policy_net.throughput.beliefs import BeliefsByType
from policy_net.throughput.form import SpeedForm
from policy_net.throughput.parametric import TypeFit
from policy_net.throughput.type_belief import Cell
from policy_net.twin.believed import CELLS, address_of, cells_of
from policy_net.twin.memory import CELL, TypeMemory


class FittedTypes:
    """What is believed of the types of a workload, in arrays that the compiled code updates.

    Args:
        beliefs: of a policy that stands between two decisions; only `keep` changes them.
        kinds: of every type, in the order of their numbers.
    """

    def __init__(self, beliefs: BeliefsByType[Any], kinds: Mapping[str, JobKind]) -> None:
        self._beliefs = beliefs
        self._kinds = kinds
        self._names = list(kinds)
        known = beliefs.beliefs_by_type()
        self._types: list[TypeFit] = [
            copy.deepcopy(known[name]) if name in known else beliefs.new_belief(kind) for name, kind in kinds.items()
        ]
        self._unseen = copy.deepcopy(beliefs)
        self._unseen.go_on_from({"kinds": {name: kind.value for name, kind in kinds.items()}, "types": {}})
        self._cells = np.zeros((len(kinds), CELLS), dtype=CELL)
        self._hoped = np.zeros((len(kinds), CELLS))
        self._fitted = np.zeros((len(kinds), CELLS))
        self._forms = {kind: _form_arrays(self._types[number].form) for number, kind in enumerate(kinds.values())}
        self._coefficients = [belief.coefficients.copy() for belief in self._types]
        self._memory: dict[int, TypeMemory] = {}
        self.failure: BaseException | None = None
        """What a fit has raised: the run ends, and the caller raises it again."""

    @property
    def refit_growth(self) -> float:
        """The share by which observations grow between two fits."""
        return self._types[0].refit_growth

    def fill(self, number: int, job_type: str, memory: TypeMemory) -> None:
        """State what is believed of a type."""
        kind, belief = self._kinds[job_type], self._types[number]
        self._memory[number] = memory
        self._hoped[number] = cells_of(self._unseen.grid(job_type), kind)
        memory.known = job_type in self._beliefs.beliefs_by_type()
        memory.refit_at, memory.cells = belief.refit_at, len(belief.cells)
        for at, ((ps, workers), cell) in enumerate(belief.cells.items()):
            self._cells[number, at] = (cell.samples, cell.seconds, ps, workers, cell.count)
        if memory.known and belief.count < belief.refit_at:
            self._fitted[number] = cells_of(belief.fitted_speeds(), kind)
        memory.hoped, memory.fitted = address_of(self._hoped[number]), address_of(self._fitted[number])
        memory.cell = address_of(self._cells[number])
        memory.terms = belief.form.terms
        form = [address_of(array) for array in self._forms[kind]]
        memory.features, memory.expected_times, memory.prior_products, memory.prior_target = form[:4]
        memory.unseen_coefficients, memory.coefficients = form[4], address_of(self._coefficients[number])

    def fit(self, number: int) -> int:
        """Fit a type to what was seen of it up to now; called by the compiled code where it cannot."""
        try:
            kind, belief = self._kinds[self._names[number]], self._types[number]
            self._fitted[number] = cells_of(belief.fit_to(self._cells_now(number)), kind)
            self._coefficients[number][:] = belief.coefficients
        except BaseException as failure:
            self.failure = failure
            return 1
        return 0

    def keep(self) -> None:
        """Let the policy believe what the run has found out."""
        checkpoint = self._beliefs.checkpoint()
        for number, (job_type, kind) in enumerate(self._kinds.items()):
            checkpoint["kinds"].setdefault(job_type, kind.value)
            memory, belief = self._memory[number], self._types[number]
            if memory.known:
                belief.cells, belief.refit_at = self._cells_now(number), memory.refit_at
                belief.coefficients = self._coefficients[number]
                checkpoint["types"][job_type] = belief.snapshot()
        self._beliefs.go_on_from(checkpoint)

    def _cells_now(self, number: int) -> dict[tuple[int, int], Cell]:
        rows = self._cells[number, : self._memory[number].cells].tolist()
        return {(ps, workers): Cell(samples, seconds, count) for samples, seconds, ps, workers, count in rows}


def _form_arrays(form: SpeedForm) -> tuple[NDArray[np.float64], ...]:
    """What the compiled code reads of a form: features, expected times, the prior's moments, unseen coefficients."""
    arrays = (form.cell_features, form.expected_times, *form.prior_moments, form.unseen_coefficients)
    return tuple(np.ascontiguousarray(array, dtype=np.float64) for array in arrays)
