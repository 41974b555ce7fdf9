"""Beliefs of policies as the compiled code has them, and back again: what a run has learned is kept.

`set` has beliefs about speeds, lengths of jobs and, on clusters of one GPU type, places. A heuristic's are in Optimus's
form: it counts what is seen and fits in the reference's order of sums, so that both are the same bit for bit, and so is
what the policy goes on with afterwards. Where rounding is in the way of a fit, the reference's own code makes it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import MAX_ALLREDUCE_WORKERS, MAX_TASKS_PER_ROLE, JobKind
from policy_net.set_policy.beliefs import LIFETIMES_KEY, PLACES_KEY, RESTARTS_KEY, SetBeliefs
from policy_net.set_policy.sessions import BINS, bin_of
from policy_net.throughput.beliefs import BeliefsByType
from policy_net.throughput.form import FORMS, SpeedForm, form_grid
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs, hoped_for_speeds
from policy_net.throughput.parametric import TypeFit
from policy_net.throughput.place_effects import PlaceBeliefs
from policy_net.throughput.process_prior import SPREADS, Prior, prior_of_kind
from policy_net.throughput.type_belief import Cell
from policy_net.twin.memory import CELL, MEAN, SESSION, CaseMemory, TypeMemory

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
            memory.doubted = entry.get("doubted", 0)
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
                "doubted": memory.doubted,
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


KINDS = tuple(JobKind)
"""In the order in which the effects of whole kinds stand, before those of types."""
SIZES = MAX_ALLREDUCE_WORKERS.bit_length()
"""Numbers of workers that are distinguished: by the power of two below them."""
NODES = ("2", "more")
GPU_TYPE = ""
"""Of all nodes of such a cluster."""
_REPORTS, _REFIT_AT, _FITS = range(3)
Rows = dict[tuple[str, ...], tuple[int, float]]
"""By key, how many reports a mean is of, and the mean."""


def knows_gpu_types(places: PlaceBeliefs) -> bool:
    """Whether anything was learned of GPU types."""
    snapshot = places.snapshot()
    of_gpus = any(key[0] == "gpu" for key, _, _ in (*snapshot["means"], *snapshot["believed"]))
    return of_gpus or not set(snapshot["gpu_types"]) <= {GPU_TYPE}


class BelievedPlaces:
    """What is believed of types whose workers are apart, in arrays that the compiled code updates.

    Args:
        places: of a policy that stands between two decisions; of GPU types nothing.
        kinds: of every type, in the order of their numbers.
    """

    def __init__(self, places: PlaceBeliefs, kinds: Mapping[str, JobKind]) -> None:
        snapshot = places.snapshot()
        self._kinds: dict[str, JobKind] = {name: JobKind(kind) for name, kind in snapshot["kinds"].items()}
        for job_type, kind in kinds.items():
            self._kinds.setdefault(job_type, kind)
        self._gpu_types: list[str] = snapshot["gpu_types"]
        self._seen_before, self._believed_before = _read(snapshot["means"]), _read(snapshot["believed"])
        self._keys = self._all_keys(list(kinds))
        self._seen, self._believed = self._array(self._seen_before), self._array(self._believed_before)
        self._reports = np.array([snapshot["reports"], snapshot["refit_at"], 0], dtype=np.int64)

    def kind_number(self, job_type: str) -> int:
        """The place of the kind that a type was first known to be of."""
        return KINDS.index(self._kinds[job_type])

    def fill(self, memory: CaseMemory) -> None:
        """State what is believed."""
        memory.span_seen, memory.span_believed = int(self._seen.ctypes.data), int(self._believed.ctypes.data)
        memory.place_reports = int(self._reports.ctypes.data)

    def snapshot(self) -> dict[str, Any]:
        """What is believed after the run, as `PlaceBeliefs` has it."""
        seen = self._seen_before | self._rows(self._seen)
        # With every fit all that was seen is believed, of types that this workload has not, too.
        before = self._seen_before if self._reports[_FITS] else self._believed_before
        return {
            "reports": int(self._reports[_REPORTS]),
            "refit_at": int(self._reports[_REFIT_AT]),
            "means": _sorted_rows(seen),
            "believed": _sorted_rows(before | self._rows(self._believed)),
            "gpu_types": [GPU_TYPE] if self._reports[_REPORTS] else self._gpu_types,
            "kinds": {job_type: kind.value for job_type, kind in sorted(self._kinds.items())},
        }

    def _all_keys(self, job_types: list[str]) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = [("span", kind.value) for kind in KINDS]
        for job_type in job_types:
            of_type = ("span", self._kinds[job_type].value, job_type)
            found += [of_type, *((*of_type, nodes, str(size)) for nodes in NODES for size in range(SIZES))]
        return found

    def _array(self, rows: Rows) -> NDArray[Any]:
        found = np.zeros(len(self._keys), dtype=MEAN)
        for at, key in enumerate(self._keys):
            count, mean = rows.get(key, (0, 0.0))
            found[at] = (mean, count)
        return found

    def _rows(self, means: NDArray[Any]) -> Rows:
        return {
            self._keys[at]: (int(means[at]["count"]), float(means[at]["mean"]))
            for at in np.flatnonzero(means["count"]).tolist()
        }


def _read(rows: list[list[Any]]) -> Rows:
    return {tuple(key): (count, mean) for key, count, mean in rows}


def _sorted_rows(rows: Rows) -> list[list[Any]]:
    return [[list(key), count, mean] for key, (count, mean) in sorted(rows.items())]


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
