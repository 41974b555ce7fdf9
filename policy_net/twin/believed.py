"""Beliefs of a `set` policy as the compiled code holds them, and back again: what a run has learned is kept."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import MAX_ALLREDUCE_WORKERS, MAX_TASKS_PER_ROLE, JobKind
from policy_net.set_policy.beliefs import LIFETIMES_KEY, PLACES_KEY, RESTARTS_KEY, SetBeliefs
from policy_net.set_policy.sessions import BINS, bin_of
from policy_net.throughput.form import FORMS, form_grid
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs, hoped_for_speeds
from policy_net.throughput.process_prior import SPREADS, Prior, prior_of_kind
from policy_net.twin.memory import CELL, SESSION, CaseMemory, TypeMemory
from policy_net.twin.places import BelievedPlaces

CELLS = (MAX_TASKS_PER_ROLE + 1) ** 2
"""Room for the splits of any type: of one without servers the first cells are used, by the number of workers."""
Array = NDArray[np.float64]


def cells_of(grid: Array, kind: JobKind) -> Array:
    """A grid [ps, workers] of a type of this kind as the compiled code has it, shape (CELLS,)."""
    cells = np.zeros(CELLS)
    if kind.uses_ps:
        square = cells.reshape(MAX_TASKS_PER_ROLE + 1, -1)
        rows, columns = np.minimum(grid.shape, square.shape)
        square[:rows, :columns] = grid[:rows, :columns]
    else:
        cells[: min(grid.shape[1], MAX_ALLREDUCE_WORKERS + 1)] = grid[0, : MAX_ALLREDUCE_WORKERS + 1]
    return cells


def split_of(cell: int, kind: JobKind) -> tuple[int, int]:
    """Workers and servers of a cell of such a type."""
    if not kind.uses_ps:
        return cell, 0
    ps, workers = divmod(cell, MAX_TASKS_PER_ROLE + 1)
    return workers, ps


def address_of(array: NDArray[Any]) -> int:
    """Address of an array's values; the array must be kept as long as the compiled code uses them."""
    return int(array.ctypes.data)


class ProcessTypes:
    """Gaussian processes of the types of a workload, in arrays that the compiled code updates.

    Args:
        beliefs: of a policy that stands between two decisions; only `keep` changes them.
        kinds: of every type, in the order of their numbers.
        beyond: types of which some job may have, or asks for, more than the usual number of workers.
    """

    def __init__(self, beliefs: GaussianProcessBeliefs, kinds: Mapping[str, JobKind], beyond: Collection[str]) -> None:
        self._beliefs = beliefs
        self._kinds = kinds
        self._beyond = beyond
        self._snapshot = beliefs.snapshot()
        self._memory: dict[str, TypeMemory] = {}
        self._cells = np.zeros((len(kinds), CELLS), dtype=CELL)
        self._conditioned_on = np.zeros((len(kinds), CELLS), dtype=CELL)
        self._priors: list[Prior] = []
        self._arrays: list[Array] = []

    def fill(self, number: int, job_type: str, memory: TypeMemory) -> None:
        """State what is believed of a type."""
        kind = self._kinds[job_type]
        self._memory[job_type] = memory
        process = self._beliefs.beliefs_by_type().get(job_type)
        prior = prior_of_kind(kind) if process is None else process.prior
        entry = self._snapshot.get(job_type)
        seen = [*entry["cells"], *entry["conditioned_on"]] if isinstance(entry, dict) else []
        beyond = job_type in self._beyond or any(workers > MAX_TASKS_PER_ROLE for _, workers, *_ in seen)
        # Where nobody asks for more, nothing is calculated for it.
        splits = FORMS[kind].parts[-1 if beyond else 0].stop
        smooth = np.ascontiguousarray(prior.smooth[:splits, :splits], dtype=np.float64)
        mean = np.ascontiguousarray(prior.mean[:splits], dtype=np.float64)
        sd_of_shape = np.ascontiguousarray(prior.sd_of_shape[:splits], dtype=np.float64)
        hoped = cells_of(self.hoped_for(kind), kind)
        if not kind.uses_ps:
            hoped[splits + 1 :] = 0.0
        memory.splits = splits
        self._arrays += [smooth, mean, sd_of_shape, hoped]
        self._priors.append(prior)
        memory.prior_mean, memory.prior_smooth = address_of(mean), address_of(smooth)
        memory.prior_sd_shape, memory.hoped = address_of(sd_of_shape), address_of(hoped)
        memory.spread_smooth, memory.spread_cell = prior.spread.smooth, prior.spread.cell
        memory.deviation_unseen = math.hypot(SPREADS[kind].smooth, SPREADS[kind].cell)
        memory.prior_of_type, memory.known = prior.of_type, process is not None
        if isinstance(entry, dict):
            memory.refit_at = entry["refit_at"]
            memory.cells = _enter(self._cells[number], entry["cells"])
            memory.conditioned = _enter(self._conditioned_on[number], entry["conditioned_on"])
        memory.cell = address_of(self._cells[number])
        memory.conditioned_on = address_of(self._conditioned_on[number])

    def hoped_for(self, kind: JobKind) -> Array:
        """Speeds of a type of which nothing was seen."""
        return form_grid(FORMS[kind], FORMS[kind].unseen_coefficients)

    def keep(self, more: Mapping[str, object] = MappingProxyType({})) -> None:
        """Put what the run has found out of speeds into the policy's beliefs, and `more` entries of their snapshot."""
        checkpoint = self._beliefs.checkpoint()
        snapshot = checkpoint["types"]
        for number, (job_type, memory) in enumerate(self._memory.items()):
            checkpoint["kinds"].setdefault(job_type, self._kinds[job_type].value)
            if not memory.known:
                continue
            snapshot[job_type] = {
                **snapshot.get(job_type, {"kind": self._kinds[job_type].value}),
                "refit_at": memory.refit_at,
                "cells": _rows(self._cells[number], memory.cells),
                "conditioned_on": _rows(self._conditioned_on[number], memory.conditioned),
            }
        snapshot.update(more)
        self._beliefs.go_on_from(checkpoint)
        self._beliefs.reach_beyond(self._beyond)


class BelievedTypes(ProcessTypes):
    """What a `set` policy believes: of types, and of how long jobs and restarts take."""

    def __init__(self, beliefs: SetBeliefs, kinds: Mapping[str, JobKind], beyond: Collection[str]) -> None:
        """See `ProcessTypes`."""
        super().__init__(beliefs, kinds, beyond)
        lifetimes, restarts = self._snapshot[LIFETIMES_KEY], self._snapshot[RESTARTS_KEY]
        assert isinstance(lifetimes, dict)  # noqa: S101  (a snapshot's own form; narrows the types)
        assert isinstance(restarts, dict)  # noqa: S101
        self.ended = np.array(lifetimes["ended"], dtype=np.float64).reshape(BINS)
        self.passed = np.array(lifetimes["passed"], dtype=np.float64).reshape(BINS)
        self.restart_mean_seconds = np.array([restarts["mean_seconds"]], dtype=np.float64)
        self.resized = np.array(restarts["resizes"], dtype=np.float64)
        self.restarts_seen = np.array([restarts["seen"]], dtype=np.int64)
        self._known_sessions: Any = lifetimes.get("sessions")
        self._places = BelievedPlaces(beliefs.places, kinds)

    def hoped_for(self, kind: JobKind) -> Array:
        """See `ProcessTypes`."""
        return hoped_for_speeds(kind)

    def fill_places(self, memory: CaseMemory) -> None:
        """State what is believed of places."""
        self._places.fill(memory)
        for job_type, of_type in self._memory.items():
            of_type.span_kind = self._places.kind_number(job_type)

    def fill_sessions(self, memory: CaseMemory, jobs: int) -> None:
        """State the sessions that jobs may still join; without the model of sessions there are none."""
        memory.with_sessions = self._known_sessions is not None
        rows = self._known_sessions["sessions"] if self._known_sessions is not None else []
        # A job begins one; one whose type trained nowhere for a while, and does again, another.
        memory.most_sessions = len(rows) + 2 * jobs
        self._sessions = np.zeros(memory.most_sessions if memory.with_sessions else 0, dtype=SESSION)
        for at, row in enumerate(rows):
            self._sessions[at] = tuple(row)
        self._session_count = np.array([len(rows)], dtype=np.int64)
        self._session_of = np.full(jobs, -1, dtype=np.int64)
        memory.sessions, memory.session_of = address_of(self._session_count), address_of(self._session_of)
        memory.session = address_of(self._sessions)

    def _kept_sessions(self, ids: Sequence[str], present: list[list[Any]]) -> dict[str, Any]:
        """Those with jobs that are still there, and the latest of every size, as a snapshot has them."""
        found = self._sessions[: int(self._session_count[0])]
        of = dict(zip(ids, self._session_of.tolist(), strict=True))
        latest = {int(one["gpus"]): at for at, one in enumerate(found)}
        kept = sorted({of[job_id] for job_id, _, _ in present} | set(latest.values()))
        numbers = {at: number for number, at in enumerate(kept)}
        sessions = [
            [int(one["gpus"]), float(one["first_submit_seconds"]), one["ended"].tolist(), one["withdrawn"].tolist()]
            for one in (found[at] for at in kept)
        ]
        return {
            "sessions": sessions,
            "of": [[job_id, numbers[of[job_id]], bin_of(samples / speed)] for job_id, samples, speed in present],
        }

    def keep_all(
        self,
        present: list[list[Any]],
        starting: list[Any],
        training: list[str],
        sizes: list[list[Any]],
        ids: Sequence[str],
        *,
        placed: bool,
    ) -> None:
        """Let the policy believe what the run has found out.

        Args:
            present: of the jobs of unknown work that are still there, id, trained samples and reference speed.
            starting: of those that start, id and seconds so far.
            sizes: of those, id, workers and servers with which they trained last.
            placed: whether the places of tasks were known.
        """
        lifetimes: dict[str, Any] = {
            "ended": self.ended.tolist(),
            "passed": self.passed.tolist(),
            "present": present,
        }
        if self._known_sessions is not None:
            lifetimes["sessions"] = self._kept_sessions(ids, present)
        restarts = {
            "seen": int(self.restarts_seen[0]),
            "mean_seconds": float(self.restart_mean_seconds[0]),
            "starting": starting,
            "training": training,
            "resizes": self.resized.tolist(),
            "sizes": sizes,
        }
        places = {PLACES_KEY: self._places.snapshot()} if placed else {}
        self.keep({LIFETIMES_KEY: lifetimes, RESTARTS_KEY: restarts, **places})


def _enter(cells: NDArray[Any], rows: list[list[float]]) -> int:
    for index, (ps, workers, samples, seconds, count) in enumerate(rows):
        cells[index] = (samples, seconds, int(ps), int(workers), int(count))
    return len(rows)


def _rows(cells: NDArray[Any], count: int) -> list[list[float]]:
    return [
        [int(cell["ps"]), int(cell["workers"]), float(cell["samples"]), float(cell["seconds"]), int(cell["count"])]
        for cell in cells[:count]
    ]
